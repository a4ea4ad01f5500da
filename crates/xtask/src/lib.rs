//! Automation of this repository, in its own language: continuous integration and the rules that tests hold.
//!
//! `ci` runs every check in order; `tidy` reads the tree and reports what breaks a rule. The rules are ordinary tests too
//! (`tests/tidy.rs`), so that `cargo test` alone finds a violation. `deb` and `static_binary` make what is handed out.
//! Not here: anything the product needs. No other crate depends on this one and it depends on none of them.

pub mod ci;
pub mod console;
pub mod previous;
pub mod first_build;
pub mod tidy;
pub mod deb;
pub mod deb_trial;
pub mod static_binary;
pub mod layering;
pub mod circles;
pub mod words;
pub mod sizes;
pub mod documents;
pub mod faults;
pub mod workspace;
pub mod outline;
pub mod scan;
