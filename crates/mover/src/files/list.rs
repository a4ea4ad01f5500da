//! Lists what lies below paths.

use super::reach::{DIRECTORIES_OPEN_MAX, Emit, Reach, failure, reached};
use model::files::{Found, Record, Tally};
use store::{How, Slots, Stopped, Surveyed};
use wire::Refusal;

pub fn list(
    paths: &[Vec<u8>],
    levels: u32,
    reach: &dyn Reach,
    is_stopped: Stopped<'_>,
    emit: Emit<'_>,
) -> Result<Tally, Refusal> {
    let slots = Slots::new(DIRECTORIES_OPEN_MAX);
    let mut tally = Tally::default();
    for (asked, path) in (0..).zip(paths) {
        let target = match reached(reach, asked, path, How::Look, &mut tally, emit)? {
            Ok(target) => target,
            Err(true) => continue,
            Err(false) => break,
        };
        let mut goes_on = true;
        target.list(levels, &slots, &mut |Surveyed { path, is_last, found }| {
            if is_stopped() {
                goes_on = false;
                return false;
            }
            goes_on = match found {
                Ok(status) => {
                    tally.count(&status);
                    emit(Record { asked, path, is_last, found: Found::Object { status, sum: None } })
                }
                Err(error) => {
                    tally.failed += 1;
                    emit(failure(asked, &path, &error))
                }
            };
            goes_on
        });
        if !goes_on {
            break;
        }
    }
    Ok(tally)
}
