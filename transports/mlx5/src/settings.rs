//! What an adapter is opened with.

use crate::error::{from_verbs, misuse};
use fusewire_nic::Result;
use fusewire_verbs::Filter;

/// Bytes of an `ibv_mtu`.
pub const fn mtu_bytes(code: u8) -> u32 {
    128 << code
}

/// The greatest `ibv_mtu` of at most `bytes`.
pub const fn mtu_code(bytes: u32) -> Option<u8> {
    match bytes {
        0..256 => None,
        256..4096 => Some((bytes.ilog2() - 7) as u8),
        _ => Some(5),
    }
}

/// Where queues are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Queues {
    /// In the memory that the transport offers: page-locked host memory.
    #[default]
    Offered,
    /// In memory of the GPU, which the adapter reaches by a dma-buf. Kernels then poll without crossing PCIe.
    Gpu,
}

/// What an adapter is opened with. Numbers are those of the InfiniBand specification; the defaults are those of torchcomms' IBGDA
/// transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Which adapters and ports may be used.
    pub filter: Filter,
    /// Most bytes of a packet: 256, 512, 1024, 2048 or 4096. The port's own limit and the peer's count as well.
    pub mtu: u32,
    /// Time for an acknowledgement: 4.096 us times two to this power, 0 for ever; at most 31. 20 is 4.3 s.
    pub timeout: u8,
    /// How often a request is sent again before it fails, at most 7.
    pub retry_count: u8,
    /// How often a request is sent again to a peer that is not ready; 7 is for ever.
    pub rnr_retry: u8,
    /// What a peer that is not ready asks for: a code from 0 to 31. 12 is 0.64 ms.
    pub min_rnr_timer: u8,
    /// Traffic class; on Ethernet its upper 6 bits are the DSCP.
    pub traffic_class: u8,
    /// Service level, at most 15; on Ethernet the priority, at most 7.
    pub service_level: u8,
    /// Routers that a packet may cross, at least 1.
    pub hop_limit: u8,
    /// Where queues are.
    pub queues: Queues,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            filter: Filter::default(),
            mtu: 4096,
            timeout: 20,
            retry_count: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            traffic_class: 224,
            service_level: 0,
            hop_limit: 255,
            queues: Queues::Offered,
        }
    }
}

impl Settings {
    /// The defaults, with the adapters that `FUSEWIRE_IB_HCA` lets through.
    ///
    /// # Errors
    /// [`fusewire_nic::Error::Misuse`] if the variable cannot be read.
    pub fn from_env() -> Result<Settings> {
        Ok(Settings { filter: Filter::from_env().map_err(from_verbs)?, ..Settings::default() })
    }

    pub(crate) fn check(&self, ethernet: bool) -> Result<()> {
        if mtu_code(self.mtu).is_none_or(|code| mtu_bytes(code) != self.mtu) {
            return Err(misuse(format!(
                "packets of {} bytes; they have at most 256, 512, 1024, 2048 or 4096",
                self.mtu
            )));
        }
        let levels = if ethernet { 7 } else { 15 };
        for (name, value, least, most) in [
            ("timeout", self.timeout, 0, 31),
            ("retry count", self.retry_count, 0, 7),
            ("retry count for peers that are not ready", self.rnr_retry, 0, 7),
            ("timer for peers that are not ready", self.min_rnr_timer, 0, 31),
            ("service level", self.service_level, 0, levels),
            ("hop limit", self.hop_limit, 1, 255),
        ] {
            if !(least..=most).contains(&value) {
                return Err(misuse(format!("a {name} of {value}; it is from {least} to {most}")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Settings, mtu_bytes, mtu_code};

    #[test]
    fn mtus_are_codes_and_bytes() {
        for (code, bytes) in [(1, 256), (2, 512), (3, 1024), (4, 2048), (5, 4096)] {
            assert_eq!((mtu_bytes(code), mtu_code(bytes)), (bytes, Some(code)));
        }
        assert_eq!((mtu_code(255), mtu_code(1500), mtu_code(9000)), (None, Some(3), Some(5)));
    }

    #[test]
    fn what_a_field_cannot_hold_is_refused() {
        let refused = |change: fn(&mut Settings), ethernet| {
            let mut settings = Settings::default();
            change(&mut settings);
            settings.check(ethernet).err().map(|e| e.to_string())
        };
        assert_eq!(refused(|_| (), true), None);
        assert_eq!(refused(|s| s.service_level = 15, false), None);
        for (change, ethernet, words) in [
            ((|s| s.timeout = 32) as fn(&mut Settings), false, "a timeout of 32; it is from 0 to 31"),
            (|s| s.mtu = 1500, true, "packets of 1500 bytes"),
            (|s| s.mtu = 8192, false, "packets of 8192 bytes"),
            (|s| s.mtu = 128, false, "packets of 128 bytes"),
            (|s| s.retry_count = 8, false, "a retry count of 8"),
            (|s| s.rnr_retry = 8, false, "of 8; it is from 0 to 7"),
            (|s| s.min_rnr_timer = 32, false, "of 32; it is from 0 to 31"),
            (|s| s.service_level = 16, false, "it is from 0 to 15"),
            (|s| s.service_level = 8, true, "it is from 0 to 7"),
            (|s| s.hop_limit = 0, true, "a hop limit of 0"),
        ] {
            let said = refused(change, ethernet);
            assert!(said.as_ref().is_some_and(|s| s.contains(words)), "{words}: {said:?}");
        }
    }
}
