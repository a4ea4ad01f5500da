//! Threads.

use std::io;
use std::thread::{Builder, Scope};
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
    Builder::new().name(name.to_owned()).spawn(run)
}

/// Starts up to `count` threads that end within the scope: fewer where the system gives no more.
///
/// # Errors
/// When it gives none.
pub fn several<'scope, F: FnOnce() + Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    count: usize,
    mut one: impl FnMut() -> F,
) -> io::Result<()> {
    for begun in 0..count {
        match Builder::new().name(name.to_owned()).spawn_scoped(scope, one()) {
            Ok(_) => {}
            Err(e) if begun == 0 => return Err(e),
            Err(_) => break,
        }
    }
    Ok(())
}

/// Waits for so long.
pub fn sleep(duration: Duration) {
    #[cfg(feature = "simulation")]
    if let Some(context) = crate::simulation::scheduler::current() {
        return context.world.sleep(duration);
    }
    std::thread::sleep(duration);
}
