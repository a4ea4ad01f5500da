//! Each way in which an answer goes wrong, at each request of a copy: it is made up for, or the copy fails and leaves nothing.
//!
//! The table says which of the two; what the store then has is compared with what was sent, and what was read with what it has.

mod bounds;
mod reading;
#[path = "../support/mod.rs"]
mod support;
mod table;
mod waiting;
mod writing;

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;
use support::{Bed, bed, buckets, noise};
use table::Ends::{Arrives, Fails};
use table::{Ends, Request, faults_at};

/// Of two parts, and two extents.
static LARGE: LazyLock<Vec<u8>> = LazyLock::new(|| noise(9 << 20));
/// How long a store that says nothing is waited for, which is longer than one takes that answers.
const PATIENCE: Duration = Duration::from_secs(3);

type Objects = BTreeMap<String, Vec<u8>>;

/// Lets one request go wrong in each way: the one that holds a text, after so many that do not. What `attempt` does ends as the table
/// says, and the store has what it had before, with what `change` makes of it where that arrives.
fn each(
    request: Request,
    (method, holds, passes): (&'static str, &'static str, u32),
    change: &dyn Fn(&mut Objects),
    prepare: impl Fn(&Bed),
    attempt: impl Fn(&Bed) -> store::Result<()>,
) {
    for (fault, ends) in faults_at(request) {
        let bed = bed();
        let bed = Bed { buckets: buckets(&bed.config).within(PATIENCE), ..bed };
        prepare(&bed);
        let mut expected = kept(&bed);
        bed.fake.order(method, holds, passes, 1, fault);
        let attempted = attempt(&bed);
        let came = attempted.as_ref().map_or_else(|error| Fails(error.kind), |()| Arrives);
        assert_eq!((came, bed.fake.fired()), (ends, 1), "{fault:?}: {attempted:?}");
        if came == Arrives {
            change(&mut expected);
        }
        assert!(kept(&bed) == expected, "{fault:?}: {:?}", kept(&bed).keys());
        assert!(is_clean(&bed, request, came), "{fault:?}");
    }
}

/// What the store has.
fn kept(bed: &Bed) -> Objects {
    let state = bed.fake.state.lock().unwrap();
    state.objects.iter().map(|(key, object)| (key.clone(), object.bytes.clone())).collect()
}

/// No upload is open. Of one whose name was lost with an answer nobody knows, and what was sent before keys expired stays for the
/// next attempt.
fn is_clean(bed: &Bed, request: Request, came: Ends) -> bool {
    let state = bed.fake.state.lock().unwrap();
    match request {
        Request::Create => state.uploads.values().all(|upload| upload.parts.is_empty()),
        Request::Parts => state.uploads.is_empty() == (came == Arrives),
        _ => state.uploads.is_empty(),
    }
}
