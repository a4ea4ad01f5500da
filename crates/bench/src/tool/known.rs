//! The tools there are, by their names.

use std::path::Path;

use super::adapter::Adapter;
use super::ends::Class;
use super::thalweg::Thalweg;
use super::{Tool, Variant, copy, globus, lftp, rclone, rsync, rsync_ssh, scp, tar, xrootd};
use crate::error::{Error, Result};

/// Names that `rival` knows.
pub const RIVALS: [&str; 9] = ["globus-url-copy", "rsync", "rsync-ssh", "scp", "rclone", "xrdcp", "lftp", "tar", "cp"];
/// Those that race unless others are asked for: all of them take long.
pub const RIVALS_DEFAULT: [&str; 3] = ["globus-url-copy", "rsync", "cp"];

pub fn rival(name: &str) -> Result<Box<dyn Tool>> {
    Ok(match name {
        "globus-url-copy" => Box::new(globus::Globus),
        "rsync" => Box::new(rsync::Rsync),
        "rsync-ssh" => Box::new(rsync_ssh::RsyncSsh),
        "scp" => Box::new(scp::Scp),
        "rclone" => Box::new(rclone::Rclone),
        "xrdcp" => Box::new(xrootd::Xrootd),
        "lftp" => Box::new(lftp::Lftp),
        "tar" => Box::new(tar::Tar),
        "cp" => Box::new(copy::Copy),
        _ => return Err(Error::usage(format!("rival {name:?}"), format!("known are {}", RIVALS.join(", ")))),
    })
}

/// A tool described by a file; see `docs/measuring.md`.
pub fn adapter(file: &Path) -> Result<Box<dyn Tool>> {
    Ok(Box::new(Adapter::read(file)?))
}

/// Our program, between hosts and within one, in each of the given builds.
pub fn ours(variants: &[Variant]) -> Vec<Box<dyn Tool>> {
    let tool = |variant: &Variant, index, class| Box::new(Thalweg::new(variant, index, class)) as Box<dyn Tool>;
    let of_class = |class| variants.iter().enumerate().map(move |(index, variant)| tool(variant, index, class));
    of_class(Class::Network).chain(of_class(Class::Local)).collect()
}
