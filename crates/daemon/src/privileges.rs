//! What a process that serves keeps of the powers of root: none, or the few that `--super` names.
//!
//! Given up for good, before the process has a second thread: permitted sets are emptied, not only effective ones. Without
//! them root is an ordinary user who owns root's files.
//!
//! Not here: becoming another user. Whoever starts the endpoint chooses that (`User=` of its unit, `setpriv`).

use rustix::io;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// What `--super` keeps: to read and write what others own, to set mode and time of it, to give it away with its set-id
/// bits and capabilities, and to make devices. The right to set `trusted.*` attributes is the right to nearly everything:
/// it is not among them.
const SUPER: [(CapabilitySet, &str); 6] = [
    (CapabilitySet::DAC_OVERRIDE, "cap_dac_override"),
    (CapabilitySet::FOWNER, "cap_fowner"),
    (CapabilitySet::CHOWN, "cap_chown"),
    (CapabilitySet::FSETID, "cap_fsetid"),
    (CapabilitySet::SETFCAP, "cap_setfcap"),
    (CapabilitySet::MKNOD, "cap_mknod"),
];

/// What of the process's capabilities an endpoint keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Privileges {
    /// All: the endpoint is one part of a larger program.
    Untouched,
    None,
    Super,
}

/// Drops from the calling thread, and from all that it starts, what is not kept. Returns the names of what is left, for
/// the log; a name is missing where the process never had it.
///
/// # Errors
/// The kernel refuses neither reading nor giving up, so an error is one of a sandbox around this process.
pub fn restrict(privileges: Privileges) -> io::Result<Vec<&'static str>> {
    let kept: &[_] = match privileges {
        Privileges::Untouched => return Ok(vec!["all that the process has"]),
        Privileges::None => &[],
        Privileges::Super => &SUPER,
    };
    let held = capabilities(None)?.permitted;
    let kept: Vec<_> = kept.iter().filter(|(capability, _)| held.contains(*capability)).collect();
    let sets = kept.iter().fold(CapabilitySet::empty(), |sets, (capability, _)| sets | *capability);
    set_capabilities(None, CapabilitySets { effective: sets, permitted: sets, inheritable: CapabilitySet::empty() })?;
    Ok(kept.into_iter().map(|(_, name)| *name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_up_does_not_come_back() {
        // A thread of its own: it does not get them back.
        let restricted = std::thread::spawn(|| {
            let before = capabilities(None).unwrap().permitted;
            let left = restrict(Privileges::Super).unwrap();
            let now = capabilities(None).unwrap();
            let kept = SUPER.iter().fold(CapabilitySet::empty(), |sets, (capability, _)| sets | *capability);
            assert_eq!(left.is_empty(), !before.intersects(kept));
            assert!(!now.permitted.intersects(!kept));
            assert_eq!(now.effective, now.permitted);
            assert_eq!(restrict(Privileges::None).unwrap(), Vec::<&str>::new());
            assert!(capabilities(None).unwrap().permitted.is_empty());
            assert_eq!(restrict(Privileges::Super).unwrap(), Vec::<&str>::new());
        });
        restricted.join().unwrap();
    }
}
