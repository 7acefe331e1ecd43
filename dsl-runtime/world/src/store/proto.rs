//! What ranks and store say to each other.

use std::io;
use std::marker::PhantomData;

use serde::de::{self, DeserializeOwned};
use serde::{Deserialize, Deserializer, Serialize};

use crate::Rank;
use crate::tcp::session::invalid;
use crate::wire::Bytes;

/// No world is larger.
pub(crate) const MAX_RANKS: usize = 1 << 16;

/// Names one collective: the group's id, and the collective's sequence number in that group.
pub(crate) type OpKey = (u64, u64);

/// From a rank to the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// This rank's part of an all-gather; no `members` means all ranks.
    Gather {
        op: OpKey,
        members: Few<Rank>,
        part: Bytes,
    },
    /// This rank's deadline has passed.
    GiveUp {
        op: OpKey,
    },
    Send {
        to: Rank,
        tag: u64,
        bytes: Bytes,
    },
    /// This rank is done with what the group is about to tear down.
    Done {
        op: OpKey,
        members: Few<Rank>,
    },
    Ping,
    Leave,
}

/// From the store to a rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Event {
    Gathered {
        op: OpKey,
        parts: Few<Bytes>,
    },
    /// Rank `by` gave up when `missing` had not arrived.
    GivenUp {
        op: OpKey,
        by: Rank,
        missing: Few<Rank>,
    },
    Message {
        from: Rank,
        tag: u64,
        bytes: Bytes,
    },
    Done {
        op: OpKey,
        rank: Rank,
    },
    Lost {
        rank: Rank,
        why: String,
    },
    Left {
        rank: Rank,
    },
    Ping,
}

/// A value as a frame's bytes, in postcard.
pub(crate) fn encode<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    postcard::to_stdvec(value).map_err(io::Error::other)
}

/// The value that a frame holds, all of it.
///
/// # Errors
/// `InvalidData` for a frame that no version of this crate sends.
pub(crate) fn decode<T: DeserializeOwned>(frame: &[u8]) -> io::Result<T> {
    let (value, rest) =
        postcard::take_from_bytes(frame).map_err(|e| invalid(format!("an unreadable frame ({e})")))?;
    if rest.is_empty() {
        Ok(value)
    } else {
        Err(invalid(format!("a frame with {} bytes too many", rest.len())))
    }
}

/// A list that is refused when it is longer than any world, before memory is taken for it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct Few<T>(pub Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Few<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> de::Visitor<'de> for Visitor<T> {
            type Value = Few<T>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "at most {MAX_RANKS} items")
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut items: A) -> Result<Few<T>, A::Error> {
                let length = items.size_hint().unwrap_or(0);
                if length > MAX_RANKS {
                    return Err(de::Error::invalid_length(length, &self));
                }
                // Memory grows with what is there, not with what a length promises.
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    if list.len() == MAX_RANKS {
                        return Err(de::Error::invalid_length(list.len() + 1, &self));
                    }
                    list.push(item);
                }
                Ok(Few(list))
            }
        }
        deserializer.deserialize_seq(Visitor(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request() -> impl Strategy<Value = Request> {
        let op = (any::<u64>(), any::<u64>());
        let bytes = prop::collection::vec(any::<u8>(), 0..200).prop_map(Bytes);
        let members = prop::collection::vec(0usize..1000, 0..9).prop_map(Few);
        prop_oneof![
            (op, members.clone(), bytes.clone()).prop_map(|(op, members, part)| Request::Gather {
                op,
                members,
                part
            }),
            op.prop_map(|op| Request::GiveUp { op }),
            (0usize..1000, any::<u64>(), bytes).prop_map(|(to, tag, bytes)| Request::Send { to, tag, bytes }),
            (op, members).prop_map(|(op, members)| Request::Done { op, members }),
            Just(Request::Ping),
            Just(Request::Leave),
        ]
    }

    proptest! {
        #[test]
        fn frames_come_back_as_they_went(request in request()) {
            prop_assert_eq!(decode::<Request>(&encode(&request).unwrap()).unwrap(), request);
        }

        #[test]
        fn any_bytes_are_an_error_or_a_value_but_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode::<Request>(&bytes);
            let _ = decode::<Event>(&bytes);
        }

        #[test]
        fn a_cut_frame_is_an_error(request in request(), cut in 0usize..300) {
            let bytes = encode(&request).unwrap();
            let cut = cut.min(bytes.len() - 1);
            prop_assert!(decode::<Request>(&bytes[..cut]).is_err());
        }
    }

    #[test]
    fn a_list_longer_than_any_world_is_refused() {
        let request = |length| Request::Done { op: (0, 0), members: Few(vec![0; length]) };
        assert!(decode::<Request>(&encode(&request(MAX_RANKS)).unwrap()).is_ok());
        assert!(decode::<Request>(&encode(&request(MAX_RANKS + 1)).unwrap()).is_err());
    }
}
