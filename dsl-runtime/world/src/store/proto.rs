//! What ranks and store say to each other, and how it is framed.

use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Rank;
use crate::wire::Bytes;

/// Names one collective: the group's id and the how-manieth of that group it is.
pub(crate) type OpKey = (u64, u64);

/// From a rank to the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// This rank's part of an all-gather; no `members` means all ranks.
    Gather {
        op: OpKey,
        members: Vec<Rank>,
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
        members: Vec<Rank>,
    },
    Ping,
    Leave,
}

/// From the store to a rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Event {
    Gathered {
        op: OpKey,
        parts: Vec<Bytes>,
    },
    /// Rank `by` gave up when `missing` had not arrived.
    GivenUp {
        op: OpKey,
        by: Rank,
        missing: Vec<Rank>,
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

/// Length of a frame, 8 bytes little-endian, then the value in postcard.
pub(crate) fn frame<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    let mut bytes = postcard::to_extend(value, vec![0; 8]).map_err(io::Error::other)?;
    let length = (bytes.len() - 8) as u64;
    bytes[..8].copy_from_slice(&length.to_le_bytes());
    Ok(bytes)
}

pub(crate) fn write_frame<T: Serialize>(to: &mut impl Write, value: &T) -> io::Result<()> {
    to.write_all(&frame(value)?)
}

/// Reads one frame; refuses one longer than `limit` before it reads or allocates it.
///
/// # Errors
/// `UnexpectedEof` between frames is an orderly end; `InvalidData` is a frame that no version of this crate sends.
pub(crate) fn read_frame<T: DeserializeOwned>(from: &mut impl Read, limit: usize) -> io::Result<T> {
    let mut length = [0; 8];
    from.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if length > limit as u64 {
        return Err(invalid(format!("a frame of {length} bytes, where {limit} are allowed")));
    }
    // Memory grows with what arrives, not with what a length promises.
    let mut body = Vec::new();
    from.take(length).read_to_end(&mut body)?;
    if (body.len() as u64) < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let (value, rest) =
        postcard::take_from_bytes(&body).map_err(|e| invalid(format!("an unreadable frame ({e})")))?;
    if rest.is_empty() {
        Ok(value)
    } else {
        Err(invalid(format!("a frame with {} bytes too many", rest.len())))
    }
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request() -> impl Strategy<Value = Request> {
        let op = (any::<u64>(), any::<u64>());
        let bytes = prop::collection::vec(any::<u8>(), 0..200).prop_map(Bytes);
        let members = prop::collection::vec(0usize..1000, 0..9);
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
            let bytes = frame(&request).unwrap();
            prop_assert_eq!(read_frame::<Request>(&mut &bytes[..], 1 << 20).unwrap(), request);
        }

        #[test]
        fn any_bytes_are_an_error_or_a_value_but_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = read_frame::<Request>(&mut &bytes[..], 256);
            let _ = read_frame::<Event>(&mut &bytes[..], 256);
            let mut framed = (bytes.len() as u64).to_le_bytes().to_vec();
            framed.extend(&bytes);
            let _ = read_frame::<Request>(&mut &framed[..], 1 << 20);
            let _ = read_frame::<Event>(&mut &framed[..], 1 << 20);
        }

        #[test]
        fn a_cut_frame_is_an_error(request in request(), cut in 0usize..300) {
            let bytes = frame(&request).unwrap();
            let cut = cut.min(bytes.len() - 1);
            prop_assert!(read_frame::<Request>(&mut &bytes[..cut], 1 << 20).is_err());
        }
    }

    #[test]
    fn a_long_frame_is_refused_unread() {
        let bytes = u64::MAX.to_le_bytes();
        let error = read_frame::<Request>(&mut &bytes[..], 512).unwrap_err();
        assert!(error.to_string().contains("512 are allowed"), "{error}");
    }
}
