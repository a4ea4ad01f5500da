//! Puts a profile's fault in, takes it back, and counts by the injector's own counters that it took place.
//!
//! Invariant: a count above zero means that the fault met the job's own packets, sockets or processes.

use super::bed::Bed;
use super::profile::{Fault, Proof, Target};
use crate::outside::process::Running;
use anyhow::Result;
use emulator::channel::Counts;
use rustix::process::Signal;

/// Fewer packets than this have not shown what jitter or asymmetry does.
const PACKETS_MIN: u64 = 50;
/// A queue that never held as much as this many products of rate and round trip was not bloated.
const BLOAT_PRODUCTS: u64 = 3;

/// What the path and the kernels had counted before the job.
pub struct Before {
    counts: [Counts; 2],
    out_of_order: u64,
}

impl Before {
    pub fn of(bed: &Bed) -> Result<Before> {
        Ok(Before { counts: bed.counts(), out_of_order: bed.out_of_order()? })
    }

    /// That had left the path towards the server.
    pub fn crossed_bytes(&self) -> u64 {
        self.counts[0].wire_bytes_delivered
    }
}

/// Puts the fault in. `client` is the job's process, if it runs already.
pub fn begin(fault: &Fault, bed: &mut Bed, client: Option<&Running>) -> Result<()> {
    match fault {
        Fault::Link { .. } => Ok(()),
        Fault::Change { words } => bed.set_link(words),
        Fault::Slow { divisor } => bed.slow_link(*divisor),
        Fault::Drop { target, toward } => bed.drop_packets(*target, *toward),
        Fault::Reset { target } => bed.kill_sockets(*target),
        Fault::ForgeReset {} => bed.forge_resets(),
        Fault::Admit { first, .. } => bed.admit(*first),
        Fault::Nic {} => bed.take_interface_down(),
        Fault::Address {} => bed.change_address(),
        Fault::Sleep { .. } => {
            client.iter().for_each(|client| client.signal(Signal::STOP));
            Ok(())
        }
        Fault::Freeze {} => {
            bed.events += bed.connections()?.data.len() as u64;
            bed.server.iter().for_each(|server| server.signal(Signal::STOP));
            Ok(())
        }
        Fault::Restart {} => {
            bed.events += bed.connections()?.data.len() as u64;
            if let Some(mut server) = bed.server.take() {
                server.kill();
            }
            bed.start_server()
        }
        Fault::Names { names, other_endpoint } => {
            if *other_endpoint {
                bed.start_other_endpoint()?;
            }
            bed.write_names(names)?;
            bed.kill_sockets(Target::All)
        }
    }
}

/// What has to be there before the job for the fault to come in its middle.
pub fn prepare(fault: &Fault, bed: &Bed) -> Result<()> {
    match fault {
        Fault::Sleep { forgets_after_seconds } => bed.forget_idle_flows(*forgets_after_seconds),
        _ => Ok(()),
    }
}

/// What has to be done once the job is under way, for a fault that was there before; true when there is no more to do.
pub fn follow(fault: &Fault, bed: &mut Bed) -> Result<bool> {
    match fault {
        Fault::Admit { only_one: true, .. } => bed.block_only_one(),
        _ => Ok(true),
    }
}

/// Takes it back.
pub fn end(fault: &Fault, bed: &Bed, client: Option<&Running>) -> Result<()> {
    match fault {
        Fault::Change { .. } | Fault::Slow { .. } => bed.restore_link(),
        Fault::Drop { .. } | Fault::ForgeReset {} | Fault::Admit { .. } => bed.clear_filters(),
        Fault::Nic {} => bed.take_interface_up(),
        Fault::Sleep { .. } => {
            client.iter().for_each(|client| client.signal(Signal::CONT));
            Ok(())
        }
        Fault::Freeze {} => {
            bed.server.iter().for_each(|server| server.signal(Signal::CONT));
            Ok(())
        }
        Fault::Names { .. } => bed.write_names(&bed.profile.names),
        Fault::Link { .. } | Fault::Reset { .. } | Fault::Address {} | Fault::Restart {} => Ok(()),
    }
}

/// What the injector counted since `before`; zero: the fault did not take place. To be asked before it is taken back,
/// but of a sleeping client, whose flows are missed only when it wakes.
pub fn count(fault: &Fault, bed: &Bed, before: &Before) -> Result<u64> {
    let now = bed.counts();
    let since = |of: fn(&Counts) -> u64| -> u64 { (0..2).map(|i| of(&now[i]) - of(&before.counts[i])).sum() };
    Ok(match fault {
        Fault::Link { proof } => match proof {
            Proof::Lost => since(|counts| counts.lost_made),
            Proof::Duplicated => since(|counts| counts.duplicated),
            Proof::Corrupted => since(|counts| counts.corrupted),
            Proof::QueueDrops => since(|counts| counts.queue_drops),
            Proof::QueueWaits => queue_waited(bed, &now),
            Proof::OutOfOrder => bed.out_of_order()? - before.out_of_order,
            Proof::Packets => since(|counts| counts.packets).saturating_sub(PACKETS_MIN),
            Proof::Relayed => bed.relayed_bytes(),
        },
        Fault::Change { words } if words.iter().any(|word| word == "down=true") => since(|counts| counts.down_drops),
        Fault::Change { .. } | Fault::Slow { .. } => since(|counts| counts.packets),
        Fault::Admit { only_one: true, .. } => bed.events,
        Fault::Drop { .. } | Fault::ForgeReset {} | Fault::Admit { .. } | Fault::Sleep { .. } => {
            bed.filtered_packets()?
        }
        Fault::Reset { .. }
        | Fault::Nic {}
        | Fault::Address {}
        | Fault::Freeze {}
        | Fault::Restart {}
        | Fault::Names { .. } => bed.events,
    })
}

fn queue_waited(bed: &Bed, now: &[Counts; 2]) -> u64 {
    let scenario = bed.lab.scenario();
    let product = |index: usize| {
        let rate = scenario.links[0].directions[index].bits_per_second.unwrap_or(0) as f64 / 8.0;
        (rate * scenario.links[0].round_trip().as_secs_f64()) as u64
    };
    let is_bloated = |index: &usize| now[*index].queue_bytes_max >= BLOAT_PRODUCTS * product(*index);
    (0..2).filter(is_bloated).map(|index| now[index].queue_bytes_max).sum()
}
