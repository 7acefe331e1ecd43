//! Agreement: what must be equal is compared before anything can hang for it.

use std::collections::BTreeSet;

use super::World;
use crate::error::{Disagreement, PeerError};
use crate::text::Printable;
use crate::{Rank, Result, wire};

type Fields = Vec<(String, String)>;

impl World {
    /// Collective: fails **on every rank** unless all have the same fields with the same values.
    ///
    /// ```
    /// # use fusewire_world::World;
    /// let results = World::threads(3, |world| {
    ///     let wire = if world.rank() == 2 { "bf16" } else { "f32" };
    ///     world.agree("all_to_all", &[("wire type", wire.to_owned()), ("slots", 4.to_string())])
    /// })?;
    /// let error = results[0].as_ref().unwrap_err().to_string();
    /// assert!(error.contains("rank 2 has wire type `bf16`, ranks 0 and 1 have `f32`"), "{error}");
    /// # Ok::<(), fusewire_world::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`PeerError::Disagreement`], naming each field that differs with who has which value, fields that not all ranks
    /// have and different topics included; or as [`all_gather`](World::all_gather).
    pub fn agree(&self, topic: &str, fields: &[(&str, String)]) -> Result<()> {
        let own: Fields = fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let parts = self.gather("agree", &wire::encode(&(topic, own))?)?;
        let decode = |(place, part): (Rank, &Vec<u8>)| {
            wire::decode::<(String, Fields)>(self.group.members[place], "what to agree on", part)
        };
        let all: Vec<_> = parts.iter().enumerate().map(decode).collect::<Result<_>>()?;

        let mut differing = Vec::new();
        let topics: Vec<_> = all.iter().map(|(topic, _)| Some(topic.clone())).collect();
        if topics.iter().any(|other| *other != topics[0]) {
            differing.push(self.differing("topic", topics));
        } else {
            let mut seen = BTreeSet::new();
            for (name, _) in all.iter().flat_map(|(_, fields)| fields) {
                if !seen.insert(name) {
                    continue;
                }
                let values: Vec<_> = all.iter().map(|(_, fields)| value_of(fields, name)).collect();
                if values.iter().any(|other| *other != values[0]) {
                    differing.push(self.differing(&Printable(name).to_string(), values));
                }
            }
        }
        if differing.is_empty() {
            return Ok(());
        }
        Err(PeerError::from(Disagreement { topic: format!("`{topic}`"), fields: differing }).into())
    }
}

/// Several fields of one name count as one with all the values.
fn value_of(fields: &Fields, name: &str) -> Option<String> {
    let values: Vec<_> =
        fields.iter().filter(|(other, _)| other == name).map(|(_, value)| value.as_str()).collect();
    (!values.is_empty()).then(|| values.join(", "))
}
