//! Storage behind other people's protocols, for hosts that have no Thalweg.
//!
//! `tree` makes of a server's files what the traits of `store` ask for. One module a protocol: `sftp` opens `sftp://HOST/ABSOLUTE`, `ftp`
//! opens `ftp://`, `gsiftp://` and `sshftp://`.
//!
//! Not here: how ssh is started (the program hands in who dials), encryption, and when something is copied or removed (`mover`).

mod tree;
pub mod ftp;
pub mod sftp;
