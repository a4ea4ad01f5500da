//! What the engine asks of its host: threads, locks, time, and the calls that change storage.
//!
//! In the product every item here is the standard library's or the kernel's, under its own name, and costs nothing. With
//! the feature `simulation` the same items ask the simulated host that the calling thread belongs to, if it belongs to
//! one: then threads run one at a time in an order drawn from a seed, time passes only when all of them wait, and the
//! host's disk may fail, lose what was not synced, or stop.
//!
//! Not here: streams between hosts (see `mover::stream`), and what a simulated disk keeps (see the crate `trial`).

pub mod fs;
pub mod sync;
pub mod thread;
pub mod time;

#[cfg(feature = "simulation")]
pub mod simulation;

/// Whether the calling thread belongs to a simulated host, of which the kernel knows nothing.
pub fn is_simulated() -> bool {
    #[cfg(feature = "simulation")]
    return simulation::is_simulated();
    #[cfg(not(feature = "simulation"))]
    false
}

/// Eight random bytes: the kernel's, or the simulation's. `None` where the kernel gives none.
pub fn random() -> Option<u64> {
    #[cfg(feature = "simulation")]
    if let Some(number) = simulation::random() {
        return Some(number);
    }
    let mut bytes = [0; 8];
    let got = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty());
    (got == Ok(8)).then(|| u64::from_le_bytes(bytes))
}

/// Tells one boot of this host from another: what was written but not synced survives a killed process, not a reboot.
pub fn boot_id() -> [u8; 16] {
    #[cfg(feature = "simulation")]
    if let Some(id) = simulation::boot_id() {
        return id;
    }
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let mut id = [0; 16];
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    for (byte, pair) in id.iter_mut().zip(digits.chunks(2)) {
        *byte = std::str::from_utf8(pair).ok().and_then(|p| u8::from_str_radix(p, 16).ok()).unwrap_or(0);
    }
    id
}
