//! Several hosts on one job, by seed: two to four that send and as many that receive, on storage that they share, with
//! the faults that hosts, networks and coordinators have.
//!
//! Production code, called a step at a time: `cluster::Cut` and `cluster::Board`; the sink of `store::posix` with its
//! fence, its marks, its staging, its sweep and its publishing, on a directory of this host, which stands for the file
//! system of all hosts; the trait `cluster::coordinator` and the engine of tests behind it. A host stands still, or
//! dies, between two calls to storage of that code.
//!
//! Simulated, in the shortest way: what `daemon::crew` does between the board and the hosts (`command`), its journal at
//! the coordinator (`mirror`), sessions, orders and messages, the part of `mover` that calls the sink (`slice`), hosts,
//! networks and clocks (`links`), and what befalls them (`site`).
//!
//! Held against it by code of its own (`judge`): at every name that appears, that it is a version of its file, whole,
//! none older than what was there, and of no slice that another one had taken over; at every word that the board lets
//! count, that it is that of whoever has the bundles, the first for each of them, and true; in the end, that faults
//! once over the job ends, that every file is there as it is at the source, and that nothing is left in staging.
//!
//! What the generator cannot do: change the order in which two hosts see each other's names (caches of network file
//! systems), or have them see no locks of each other; put back an older copy of etcd's data; files in ranges, large
//! files, and sources that go away; power losses.

mod ground;
mod judge;
mod slice;
mod etcd;
mod mirror;
mod command;
mod links;
mod site;
mod scene;

pub use judge::CLASSES;
pub use site::Engine;

use super::seen::{STEPS_MAX, Seen};
use anyhow::{Context, Result};
use os::simulation::scheduler::spawn_on;
use os::simulation::{Disk, World};
use scene::Scene;
use std::any::Any;
use std::path::Path;
use std::sync::Arc;

/// One seed: events under faults, and the end without.
pub fn run_one(seed: u64, engine: Engine, dir: &Path, is_told: bool) -> Result<Seen> {
    play(seed, engine, dir, is_told).map(|(seen, _)| seen)
}

/// Returns also a number that is the same for the same course.
fn play(seed: u64, engine: Engine, dir: &Path, is_told: bool) -> Result<(Seen, u64)> {
    std::fs::create_dir(dir).with_context(|| format!("make {}", dir.display()))?;
    let scene = Arc::new(Scene::new(seed, engine, dir, is_told)?);
    let played = World::run(seed, STEPS_MAX, |world| {
        let disk: Arc<dyn Disk> = scene.clone();
        let (machine, inner) = (world.host(Some(disk), [0; 16]), scene.clone());
        spawn_on(world, &machine, "hosts", move || inner.play()).join()
    });
    // Whatever the code under trial does not expect is a violation like any other.
    if let Err(panic) = played {
        scene.breaks(format!("I11: a panic: {}", text_of(&*panic)));
    }
    let (mut seen, course) = scene.end();
    std::fs::remove_dir_all(dir).with_context(|| format!("remove {}", dir.display()))?;
    seen.broken = seen.broken.map(|broken| format!("{broken} (with {engine:?})"));
    Ok((seen, course))
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_runs_the_same_way_each_time_and_another_one_another_way() {
        // Numbers of files come from the processor that makes them.
        super::super::pin(0);
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let course = |seed: u64, engine: Engine, name: &str| {
            let (seen, course) = play(seed, engine, &dir.path().join(name), false).unwrap();
            assert_eq!(seen.broken, None);
            (seen.fired, seen.attempts, course)
        };
        let courses = |name: &str| -> Vec<_> {
            let of_seed = |seed: u64| {
                [Engine::Head, Engine::Etcd].map(|engine| course(seed, engine, &format!("{name}-{seed}-{engine:?}")))
            };
            (1..6).flat_map(of_seed).collect()
        };
        let first = courses("first");
        assert!(first == courses("second"));
        assert_ne!(first[0].2, first[2].2);
    }
}
