//! Postcard, with errors that name the sender.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::error::PeerError;
use crate::{Error, Rank, Result};

pub(crate) fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>> {
    postcard::to_stdvec(value).map_err(|e| {
        Error::misuse(
            format!("a value of type {} cannot be encoded ({e})", std::any::type_name::<T>()),
            "use types that postcard can carry (sequences and maps need a known length)",
        )
    })
}

pub(crate) fn decode<T: DeserializeOwned>(from: Rank, what: &str, bytes: &[u8]) -> Result<T> {
    postcard::from_bytes(bytes)
        .map_err(|e| PeerError::Garbled { rank: from, what: what.to_owned(), why: e.to_string() }.into())
}

/// Bytes that are copied as one block, not element by element.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Bytes(pub Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Bytes;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Bytes, E> {
                Ok(Bytes(bytes.to_vec()))
            }
        }
        deserializer.deserialize_bytes(Visitor)
    }
}
