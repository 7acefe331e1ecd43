//! The thread that it runs on.

use super::Engine;
use fusewire_device::arch::relax;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// The running thread.
#[derive(Debug)]
pub struct Proxy {
    engine: Arc<Mutex<Engine>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    pub fn start(engine: Engine) -> std::io::Result<Self> {
        let (engine, stop) = (Arc::new(Mutex::new(engine)), Arc::new(AtomicBool::new(false)));
        let (own, ends) = (Arc::clone(&engine), Arc::clone(&stop));
        let thread = std::thread::Builder::new().name("rdma proxy".into()).spawn(move || {
            let mut idle = 0;
            while !ends.load(Ordering::Acquire) {
                let busy = lock(&own).turn();
                idle = if busy { 0 } else { idle + 1 };
                relax(idle);
            }
        })?;
        Ok(Proxy { engine, stop, thread: Some(thread) })
    }

    pub fn engine(&self) -> MutexGuard<'_, Engine> {
        lock(&self.engine)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(engine: &Mutex<Engine>) -> MutexGuard<'_, Engine> {
    engine.lock().unwrap_or_else(PoisonError::into_inner)
}
