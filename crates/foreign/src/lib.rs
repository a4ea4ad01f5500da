//! Storage behind other people's protocols, for hosts that have no Thalweg.
//!
//! One module a protocol; each makes of it what the traits of `store` ask for. `sftp` opens `sftp://HOST/ABSOLUTE`.
//!
//! Not here: how the other host is reached (the program hands in who dials), encryption, and when something is copied or
//! removed (`mover`).

pub mod sftp;
