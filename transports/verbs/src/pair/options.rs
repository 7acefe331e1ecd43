//! How a queue pair is made.

/// Geometry and patience of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairOptions {
    /// Requests under way at most.
    pub send_depth: u32,
    /// Receives posted at most.
    pub receive_depth: u32,
    /// Bytes that requests may carry in themselves.
    pub inline: u32,
    /// An unacknowledged packet is sent again after `4.096 us << timeout`. 14 is 67 ms.
    pub timeout: u8,
    /// How often; 7 is for ever on some adapters (soft-RoCE among them).
    pub retries: u8,
    /// How often a message that finds no receive is sent again; 7 is for ever.
    pub receiver_retries: u8,
    /// `min_rnr_timer`: how long the receiver asks to wait between those. 12 is 0.64 ms.
    pub receiver_timer: u8,
}

impl Default for PairOptions {
    /// 256 requests, 256 receives, 32 bytes inline; an answer is missed for half a second; receives for ever, since waits have
    /// deadlines of their own.
    fn default() -> Self {
        PairOptions {
            send_depth: 256,
            receive_depth: 256,
            inline: 32,
            timeout: 14,
            retries: 6,
            receiver_retries: 7,
            receiver_timer: 12,
        }
    }
}
