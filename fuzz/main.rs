//! Hands libFuzzer's inputs to the target that the environment variable `THALWEG_FUZZ_TARGET` names.
//!
//! One program for all targets: they share everything that takes long to build, and what one does not reach it does not
//! count. libFuzzer's arguments are its own; `trial fuzz` gives them.

#![no_main]

use std::sync::OnceLock;
use trial::targets::{self, Target};

libfuzzer_sys::fuzz_target!(|data: &[u8]| (target().run)(data));

fn target() -> &'static Target {
    static TARGET: OnceLock<&Target> = OnceLock::new();
    TARGET.get_or_init(|| {
        let name = std::env::var("THALWEG_FUZZ_TARGET").unwrap_or_default();
        targets::find(&name).unwrap_or_else(|| {
            let known: Vec<_> = targets::TARGETS.iter().map(|target| target.name).collect();
            panic!("THALWEG_FUZZ_TARGET must be one of {}", known.join(", "))
        })
    })
}
