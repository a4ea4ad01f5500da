//! Replays a target's corpus and regressions, and mutates them under a seed: what CI can do without a C++ compiler.
//!
//! Not here: coverage. This finds what lies near the corpus; libFuzzer finds the rest.

use super::Target;
use std::io;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::time::{Duration, Instant};

/// Mutations of one input.
const CHANGES_MAX: u64 = 6;

/// Everything stored for a target, by name.
pub fn stored(target: &Target, folder: &Path) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut inputs = Vec::new();
    for kind in ["corpus", "regressions"] {
        let place = folder.join(kind).join(target.name);
        let files = match std::fs::read_dir(&place) {
            Ok(files) => files,
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(e),
        };
        for file in files {
            let path = file?.path();
            inputs.push((path.display().to_string(), std::fs::read(&path)?));
        }
    }
    inputs.sort();
    Ok(inputs)
}

/// Runs everything stored, then mutations of it, for at most so long and so many. Returns how many inputs ran.
///
/// # Panics
/// As the target does, after the input was named.
pub fn run(target: &Target, folder: &Path, seed: u64, time: Duration, runs_max: u64) -> io::Result<u64> {
    let mut inputs = stored(target, folder)?;
    let mut runs = 0;
    for (name, data) in &inputs {
        judge(target, name, data);
        runs += 1;
    }
    inputs.push(("nothing".into(), Vec::new()));
    let mut random = Random(seed.wrapping_mul(2).wrapping_add(1));
    let started = Instant::now();
    while runs < runs_max && started.elapsed() < time {
        let (_, base) = &inputs[random.below(inputs.len())];
        let (_, other) = &inputs[random.below(inputs.len())];
        let data = changed(base, other, target.bytes_max, &mut random);
        judge(target, "a mutation", &data);
        runs += 1;
    }
    Ok(runs)
}

/// Runs one input; one that fails is shown so that it can be stored.
fn judge(target: &Target, name: &str, data: &[u8]) {
    if let Err(cause) = std::panic::catch_unwind(AssertUnwindSafe(|| (target.run)(data))) {
        let hex: String = data.iter().map(|byte| format!("{byte:02x}")).collect();
        let why = cause.downcast_ref::<String>().map(String::as_str).or(cause.downcast_ref::<&str>().copied());
        panic!("target {}, {name}: {}; the input is {hex}", target.name, why.unwrap_or("it panicked"));
    }
}

fn changed(base: &[u8], other: &[u8], bytes_max: usize, random: &mut Random) -> Vec<u8> {
    let mut data = base.to_vec();
    for _ in 0..=random.next() % CHANGES_MAX {
        let at = random.below(data.len() + 1);
        match random.next() % 6 {
            0 if at < data.len() => data[at] ^= 1 << (random.next() % 8),
            1 if at < data.len() => data[at] = [0, 1, 127, 128, 254, 255][random.below(6)],
            2 => data.insert(at, random.next() as u8),
            3 if at < data.len() => _ = data.remove(at),
            4 => data.truncate(at),
            _ if !other.is_empty() => {
                let from = random.below(other.len());
                let length = random.below(other.len() - from) + 1;
                data.splice(at..at, other[from..from + length].iter().copied());
            }
            _ => {}
        }
    }
    data.truncate(bytes_max);
    data
}

/// xorshift64 (Marsaglia 2003); never zero.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}
