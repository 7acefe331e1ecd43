//! Names of registered memory.

/// A memory key in network byte order, as entries carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(all(feature = "host", not(target_arch = "nvptx64")), derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(transparent)]
pub struct Key(u32);

impl Key {
    /// From the number that a registration returned.
    #[inline(always)]
    pub const fn new(number: u32) -> Self {
        Key(number.to_be())
    }

    /// The number that a registration returned.
    #[inline(always)]
    pub const fn number(self) -> u32 {
        u32::from_be(self.0)
    }

    /// The four bytes as they stand in an entry, as one word of this machine.
    #[inline(always)]
    pub(super) const fn word(self) -> u32 {
        self.0
    }
}

macro_rules! buffer {
    ($(#[$doc:meta])* $name:ident, $key:ident, $(#[$keydoc:meta])*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[cfg_attr(all(feature = "host", not(target_arch = "nvptx64")), derive(bytemuck::Pod, bytemuck::Zeroable))]
        #[repr(C)]
        pub struct $name {
            /// Address of the first byte, as its own adapter knows it.
            pub addr: u64,
            $(#[$keydoc])*
            pub $key: Key,
            /// Zero.
            pub reserved: u32,
        }

        impl $name {
            /// Memory at `addr` under the key with this number.
            #[inline(always)]
            pub const fn new(addr: u64, key: u32) -> Self {
                $name { addr, $key: Key::new(key), reserved: 0 }
            }

            /// The same memory from `bytes` further on.
            #[inline(always)]
            #[must_use]
            pub const fn at(self, bytes: u64) -> Self {
                $name { addr: self.addr.wrapping_add(bytes), ..self }
            }
        }
    };
}

buffer! {
    /// Registered memory of this rank.
    LocalBuffer, lkey,
    /// What this rank's adapter knows it by.
}
buffer! {
    /// Registered memory of a peer.
    RemoteBuffer, rkey,
    /// What the peer's adapter gave out for it.
}

impl LocalBuffer {
    /// The same memory for an operation that comes back to this rank through a loopback connection: an mlx5 region has one number for
    /// both keys.
    #[inline(always)]
    pub const fn looped_back(self) -> RemoteBuffer {
        RemoteBuffer { addr: self.addr, rkey: self.lkey, reserved: 0 }
    }
}
