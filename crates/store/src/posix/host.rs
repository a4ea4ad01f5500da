//! Which host this is, as storage that several hosts share has to tell them apart.
//!
//! The name is the same after a restart, so that staging is found again. It is a hash: what a host is called, and the number
//! that its system asks not to be shown around (machine-id(5)), are nobody else's business.

use model::{DigestAlgorithm, Name};
use std::sync::OnceLock;

/// Names of hosts start so, wherever they stand.
pub const HOST_PREFIX: &[u8] = b"host-";
/// Digits of a name: hosts that share a root are a few thousand at most.
const DIGITS: usize = 16;

/// This host's name. Asked before a process is confined, it is known to it afterwards.
pub fn own() -> &'static Name {
    static OWN: OnceLock<Name> = OnceLock::new();
    OWN.get_or_init(|| {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let machine = ["/etc/machine-id", "/var/lib/dbus/machine-id"].map(read);
        let called = rustix::system::uname().nodename().to_string_lossy().into_owned();
        name_of(&machine, &called, &read("/proc/sys/kernel/random/boot_id"))
    })
}

/// The machine's own number with what the host is called: copies of one system have the first in common. Where there is no
/// such number, as in many containers, the number of the kernel's start stands for it.
fn name_of(machine: &[String], called: &str, boot: &str) -> Name {
    let is_number = |text: &&String| text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let number = machine.iter().find(is_number).map_or(boot, |number| number.as_str());
    let digest = DigestAlgorithm::Blake3.of_object(format!("thalweg staging\n{number}\n{called}\n").as_bytes());
    named(&digest.to_string()[..DIGITS])
}

/// A host of this name.
///
/// # Panics
/// If it is no name.
pub fn named(name: &str) -> Name {
    Name::new(&[HOST_PREFIX, name.as_bytes()].concat()).expect("letters and digits are a name")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_one_name_and_copies_of_its_system_have_others() {
        assert_eq!(own(), own());
        let number = "0123456789abcdef0123456789abcdef".to_owned();
        let name = |machine: &str, called, boot| name_of(&[machine.to_owned(), String::new()], called, boot);
        let first = name(&number, "a", "x");
        assert_eq!(first, name(&number, "a", "y"), "a restart changes nothing");
        assert_ne!(first, name(&number, "b", "x"));
        for without in ["", "uninitialized"] {
            assert_ne!(name(without, "a", "x"), name(without, "a", "y"));
            assert_ne!(name(without, "a", "x"), first);
        }
        let text = String::from_utf8(first.as_bytes().to_vec()).unwrap();
        assert!(text.len() == 21 && !text.contains(&number[..8]), "{text}");
    }
}
