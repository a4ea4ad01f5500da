//! The checks, in groups; each is a function of an empty place.

mod source;
mod staging;
mod publish;
mod journal;
mod tree;
mod shelf;

use crate::check::Check;

pub const GROUPS: &[(&str, &[Check])] = &[
    ("Sources", source::CHECKS),
    ("Staging", staging::CHECKS),
    ("Publishing", publish::CHECKS),
    ("Large objects and their journals", journal::CHECKS),
    ("Trees and what is not content", tree::CHECKS),
    ("Questions about files", shelf::CHECKS),
];
