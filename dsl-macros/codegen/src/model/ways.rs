//! How bytes may travel: the protocols and variants that a kernel is compiled for.

use super::{Hook, Instance, Item, Model};
use crate::tables::{ELEMENTS, Protocol, Schedule, Transport};

/// The launcher of schedules that are functions.
const WITHIN: &str = "CustomLauncher";

impl Schedule {
    /// One that is a function of the hook module.
    pub fn within(name: &'static str) -> Self {
        Schedule {
            name,
            krate: None,
            marker: "",
            launcher: WITHIN,
            implied: false,
            own: false,
            once: false,
            folds: false,
            mutual: true,
            // What is sent and received when, is the function's promise.
            apart: true,
            two_steps: false,
            doc: "",
        }
    }

    /// Whether it is a function of the hook module.
    pub fn is_within(&self) -> bool {
        self.launcher == WITHIN
    }
}

impl Model {
    /// How bytes may travel.
    pub fn protocols(&self, schedule: Option<&Schedule>, transport: &Transport) -> Vec<Protocol> {
        let mut protocols = vec![Protocol::Simple];
        if schedule.is_some_and(Schedule::is_within) {
            return protocols;
        }
        if schedule.is_some() && transport.direct {
            protocols.push(Protocol::Ll);
        }
        if schedule.is_some_and(|s| s.own) && transport.direct && transport.cuda {
            protocols.push(Protocol::Local);
        }
        let twice = schedule.is_some_and(|s| s.two_steps);
        if self.options.row.is_some() {
            protocols.extend(schedule.filter(|s| twice && s.folds && s.mutual).map(|_| Protocol::TwoShot));
            return protocols;
        }
        if twice {
            protocols.push(Protocol::TwoShot);
        }
        if transport.domains && schedule.is_some_and(Schedule::crosses) {
            protocols.push(Protocol::Hierarchical);
        }
        if schedule.is_none_or(|s| s.folds && !s.mutual) || !transport.direct {
            return protocols;
        }
        protocols.push(Protocol::Ll128);
        if twice && schedule.is_some_and(|s| s.mutual) {
            protocols.push(Protocol::Ll128TwoShot);
        }
        if schedule.is_some_and(|s| !s.mutual || s.folds) {
            return protocols;
        }
        if self.stores() {
            protocols.push(Protocol::Direct);
        }
        if self.copies() {
            protocols.push(Protocol::Bulk);
        }
        if self.copies() && transport.cuda {
            protocols.push(Protocol::Copy);
        }
        protocols
    }

    /// Whether what arrives is stored to `output` as it is, so that the sender may store it there.
    fn stores(&self) -> bool {
        self.as_is().1
    }

    /// Whether the elements of `input` go to `output` as they are.
    pub fn copies(&self) -> bool {
        self.as_is() == (true, true)
    }

    /// Whether `input` is sent as it is, and what arrives stored to `output` as it is.
    pub fn as_is(&self) -> (bool, bool) {
        match &self.item {
            Item::Hooks(m) => (m.produce.is_none(), m.consume.is_none() && self.options.reduce.is_none()),
            Item::Schedule(_) => (false, false),
        }
    }

    /// Packs in flight of each variant, the default first.
    ///
    /// By pack many are in flight. By element each is many loads of its own: of narrow wire types one pack is as many as registers hold.
    /// Of a rank alone one pack of 8-bit floats is enough: it is two in memory or four, and fewer registers let more threads run.
    pub fn unrolls(&self, instance: &Instance, protocol: Protocol) -> Vec<u32> {
        if !self.options.unroll.is_empty() {
            return self.options.unroll.clone();
        }
        let Item::Hooks(m) = &self.item else { return vec![2] };
        let by_pack = |h: &Option<Hook>| h.as_ref().is_none_or(|h| h.wire.as_ref().is_some_and(|w| w.1));
        // Tiles have a number of their own in flight.
        let packs = (by_pack(&m.produce) || self.options.transposed.is_some()) && by_pack(&m.consume);
        let wire = self.wire().map(|(w, _)| quote::quote!(#w).to_string()).unwrap_or_default();
        let named = |name: &str| ELEMENTS.iter().any(|e| e.0 == name);
        let wire = if named(&wire) { Some(&wire) } else { instance.element.as_ref().map(|e| &e.0) };
        let ends = |names: &[&str]| wire.is_some_and(|w| names.iter().any(|n| w.ends_with(n)));
        let narrow = ends(&["F8E4M3", "F8E5M2"]);
        let (bytes, halves) = (narrow || ends(&["u8", "i8"]), ends(&["16"]));
        let alone = protocol == Protocol::Local && self.options.reduce.is_none();
        vec![match packs {
            // Eight packs of bytes, or with the user's own work on them, are more than sm_80's compiler has registers for.
            true if self.copies() && !bytes => 8,
            true if alone && narrow && !self.copies() => 1,
            true => 4,
            false if bytes || halves => 1,
            false => 2,
        }]
    }

    /// Packs in flight of tiles by the module's hooks: one number for all that it is compiled for, which its `Args` have with them. So the least of the defaults.
    pub fn unroll_within(&self) -> u32 {
        self.instances().iter().map(|of| self.unrolls(of, Protocol::Simple)[0]).min().unwrap_or(1)
    }
}
