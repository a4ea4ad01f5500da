//! What others use of the machine while something is measured.
//!
//! Invariant: what counts as theirs is neither the client's, nor the server's, nor this program's, in which the laboratory runs.
//! Not here: whether the link was late (`lab::record`).

use crate::account::{Machine, own_cpu_seconds};
use crate::dataset::cores;
use crate::process::Server;

/// Of the machine, above which `thalweg calibrate` refuses to measure.
const FOREIGN_SHARE_MAX: f64 = 0.10;

/// What was used until a measurement began.
pub struct Load<'a> {
    server: &'a Server,
    server_seconds: f64,
    own_seconds: f64,
    machine: Machine,
}

impl Load<'_> {
    pub fn begin(server: &Server) -> Load<'_> {
        let (server_seconds, own_seconds) = (server.cpu_seconds(), own_cpu_seconds());
        Load { server, server_seconds, own_seconds, machine: Machine::read() }
    }

    /// The share of the machine that others, and other virtual machines, have used in the seconds since then, of which the client had so
    /// many processor seconds.
    pub fn foreign(&self, seconds: f64, client_seconds: f64) -> f64 {
        let machine = Machine::read();
        let all = machine.busy_seconds + machine.steal_seconds - self.machine.busy_seconds - self.machine.steal_seconds;
        let server_seconds = self.server.cpu_seconds() - self.server_seconds;
        let used = client_seconds + server_seconds + own_cpu_seconds() - self.own_seconds;
        (all - used).max(0.0) / (seconds.max(1e-3) * cores() as f64)
    }
}

/// Why what was measured beside such a share says little of what was measured.
pub fn reason_to_void(foreign: f64) -> Option<String> {
    let percent = |share: f64| 100.0 * share;
    let (used, most) = (percent(foreign), percent(FOREIGN_SHARE_MAX));
    (foreign > FOREIGN_SHARE_MAX).then(|| format!("others used {used:.0} % of the processors ({most:.0} % at most)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_a_tenth_of_the_machine_is_a_reason() {
        assert_eq!(reason_to_void(0.10), None);
        assert_eq!(reason_to_void(0.466).unwrap(), "others used 47 % of the processors (10 % at most)");
    }
}
