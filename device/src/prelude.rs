//! What a hook module sees without importing anything: all of it exists on the device and on the host.

pub use crate::args::{Accumulate, InOut, Out, Packs};
pub use crate::ctx::{Consume, Ctx, Produce};
pub use crate::element::{Bf16, Element, F8E4M3, F8E5M2, F16, Float};
pub use crate::group::{Block, Group, Thread, Warp, Warps};
pub use crate::kernel::{Grain, HookTiles, Kernel, Ll128Tiles, Tile};
pub use crate::math;
pub use crate::ops::{Get, Ops, Put};
pub use crate::pack::Pack;
pub use crate::print_at;
pub use crate::row::{PerGroup, PerRow, Rows, Ue8m0};
pub use crate::team::{Shared, Team};
pub use crate::wait::{Flow, Stopped};
pub use crate::window::{AllMapped, Cmp, DevicePeers, DeviceWindow, LinkKind, SignalOp, Window};
