//! Questions about files.

use crate::check::Check;

pub const CHECKS: &[Check] = &[];
