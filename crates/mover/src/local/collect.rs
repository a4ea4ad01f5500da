//! What a catalogue on this host lists, brought by those who have it: a job whose sender is within this process and only lists.
//!
//! Invariant: nothing of the content comes from the source; all of it is compared with what the catalogue tells (`receiver::Gather`).

use super::{Bridge, LocalSpec, ToReceiver, ToSender};
use crate::job::{Ending, Guide, Observer};
use crate::progress::Progress;
use crate::receiver::{Gather, LEAD, ReceiveJob, ReceiveSpec};
use crate::report::Report;
use crate::sender::SendJob;
use crate::session::SEVERAL;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use store::{Sink, Source};
use wire::CloseCode;

/// Receives into `sink` what `catalogue` lists, from the holders of `gather`, and waits for the end.
///
/// # Errors
/// When the destination cannot be used.
pub fn collect(
    spec: LocalSpec,
    catalogue: Arc<dyn Source>,
    sink: Arc<dyn Sink>,
    progress: Arc<Progress>,
    observer: Option<Arc<dyn Observer>>,
    (guide, gather): (&dyn Guide, &Arc<Gather>),
) -> store::Result<Report> {
    // Another catalogue may have been received into the same place before.
    progress.is_listing_complete.store(false, Relaxed);
    let bridge = Arc::new(Bridge { to_sender: OnceLock::new(), to_receiver: OnceLock::new() });
    let LocalSpec { id, options, rename_to, memory, .. } = spec;
    let receive = ReceiveSpec { number: 0, id, sender: SEVERAL, options: options.clone(), rename_to };
    let port = Arc::new(ToSender(bridge.clone()));
    let receiver = ReceiveJob::new(receive, sink.clone(), port, progress.clone(), observer)?;
    receiver.take_place(gather, LEAD);
    let port = Arc::new(ToReceiver(bridge.clone()));
    // The sender's counters would repeat the receiver's: it gets its own.
    let sender = SendJob::new(0, options.clone(), catalogue, port, Progress::new(), None);
    let _ = bridge.to_sender.set(Arc::downgrade(&sender));
    let _ = bridge.to_receiver.set(Arc::downgrade(&receiver));
    sender.charge_to(memory.clone());
    receiver.charge_to(memory);
    receiver.start();
    sender.start();
    let ending = loop {
        if let Some(ending) = receiver.end.wait(Duration::from_millis(50)) {
            break ending;
        }
        if let Some(ending) = sender.end.wait(Duration::ZERO).filter(|ending| !matches!(ending, Ending::Finished(_))) {
            receiver.stop(ending);
        }
        if guide.is_over() {
            receiver.cancel(CloseCode::Cancelled, "interrupted");
        }
    };
    if !matches!(ending, Ending::Finished(_)) {
        sender.stop(ending.clone());
    }
    sink.notes().into_iter().for_each(|note| progress.note(note));
    Ok(Report::new(&progress, ending, options, false))
}
