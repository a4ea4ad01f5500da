//! Keys do not reach core dumps, nor other processes of the same user: what holds keys is neither dumped nor traced.
//!
//! Called before a key is read or made. Whoever may trace any process (root) still can; programs that this one starts are
//! dumped and traced as usual. Not covered: swap and hibernation, which belong to the host.

use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};

/// Takes effect for the whole process. A kernel or sandbox that refuses leaves things as they are, and the log says so.
pub fn forbid() {
    if let Err(e) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(error = %e, "cannot disable core dumps of this process; they would contain its keys");
    }
    // For a kernel that is told to dump what is not dumpable (fs.suid_dumpable). Only the soft limit: programs that are
    // started from here may raise theirs.
    let maximum = getrlimit(Resource::Core).maximum;
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum });
}
