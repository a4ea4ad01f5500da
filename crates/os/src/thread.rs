//! Threads.

use std::io;
use std::time::Duration;

#[cfg(feature = "simulation")]
pub use crate::simulation::scheduler::JoinHandle;
#[cfg(not(feature = "simulation"))]
pub use std::thread::JoinHandle;

/// Starts a thread.
///
/// # Errors
/// When the system gives no thread.
pub fn spawn<T: Send + 'static>(name: &str, run: impl FnOnce() -> T + Send + 'static) -> io::Result<JoinHandle<T>> {
    #[cfg(feature = "simulation")]
    return crate::simulation::scheduler::spawn(name, run);
    #[cfg(not(feature = "simulation"))]
    std::thread::Builder::new().name(name.to_owned()).spawn(run)
}

/// Waits for so long.
pub fn sleep(duration: Duration) {
    #[cfg(feature = "simulation")]
    if let Some(context) = crate::simulation::scheduler::current() {
        return context.world.sleep(duration);
    }
    std::thread::sleep(duration);
}
