//! What both ends of a connection share.

use std::io;
use std::time::Duration;

/// Room for a request's fields beside its payload: the longest list of members.
pub(crate) const FRAME_SLACK: usize = 256 << 10;

/// A thread of the store's or of a rank's connection.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).stack_size(256 << 10).spawn(body).map(drop)
}

/// What the end of a connection says about the rank at its other end.
pub(crate) fn why_lost(error: &io::Error, silence: Option<Duration>) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "its connection closed without a goodbye".to_owned(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            format!("nothing whole was heard of it for {:.1} s", silence.unwrap_or_default().as_secs_f64())
        }
        io::ErrorKind::InvalidData => format!("it sent {error}"),
        _ => format!("its connection broke ({error})"),
    }
}
