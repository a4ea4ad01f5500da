//! Paths that lose by themselves, from one command to the next, as a file in the user's state directory.
//!
//! Invariant: a file that cannot be read or written costs a copy its first seconds, and nothing else.
//!
//! Not here: what is known of a path, and for how long (`mover::session::lossy_paths`).

use crate::calibrations::{directory, replace};
use mover::session::lossy_paths::{self, Paths};
use std::fs;
use std::path::Path;

/// No calibration has a name with two dots.
const FILE: &str = "lossy.paths.json";

/// Tells the copies of this process what earlier ones found.
pub fn recall() {
    if let Ok(directory) = directory() {
        lossy_paths::learn(read(&directory.join(FILE)));
    }
}

/// Keeps what copies of this process found.
pub fn remember() {
    let Ok(file) = directory().map(|directory| directory.join(FILE)) else { return };
    // Other commands may have written it meanwhile.
    let mut paths = read(&file);
    if lossy_paths::update(&mut paths) {
        let text = serde_json::to_string(&paths).expect("plain values have a JSON form") + "\n";
        let _ = replace(&file, text);
    }
}

fn read(file: &Path) -> Paths {
    const BYTES_MAX: u64 = 1 << 20;
    let is_short = fs::metadata(file).is_ok_and(|found| found.len() <= BYTES_MAX);
    let text = if is_short { fs::read(file).ok() } else { None };
    text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}
