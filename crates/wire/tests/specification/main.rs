//! The specification against the program.

#[path = "../second_decoder/mod.rs"]
mod second_decoder;
