//! Lines of changes on their way to standard output.
//!
//! They come from the thread that hears the other side, which must not wait for a reader that pauses: a thread of their own
//! writes them, and `QUEUED_BYTES` of them may wait.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

const QUEUED_BYTES: usize = 64 << 20;

pub struct Lines {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    lines: VecDeque<String>,
    bytes: usize,
    is_over: bool,
}

impl Lines {
    pub fn start() -> Lines {
        let shared = Arc::<Shared>::default();
        let for_thread = shared.clone();
        let writer = std::thread::Builder::new().name("changes".into()).spawn(move || for_thread.write());
        Lines { shared, writer: writer.ok() }
    }

    pub fn push(&self, lines: Vec<String>) {
        let mut state = self.shared.state.lock().unwrap();
        while state.bytes > QUEUED_BYTES && !state.is_over {
            state = self.shared.changed.wait(state).unwrap();
        }
        state.bytes += lines.iter().map(String::len).sum::<usize>();
        state.lines.extend(lines);
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Waits until all is written.
    pub fn finish(&mut self) {
        self.shared.state.lock().unwrap().is_over = true;
        self.shared.changed.notify_all();
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Shared {
    fn write(&self) {
        loop {
            let mut state = self.state.lock().unwrap();
            while state.lines.is_empty() && !state.is_over {
                state = self.changed.wait(state).unwrap();
            }
            let lines = std::mem::take(&mut state.lines);
            state.bytes = 0;
            let is_over = state.is_over;
            drop(state);
            self.changed.notify_all();
            if lines.is_empty() && is_over {
                return;
            }
            let text: Vec<_> = lines.into();
            if !text.is_empty() && !super::line(&text.join("\n")) {
                // Nobody reads: what comes later is dropped.
                self.state.lock().unwrap().is_over = true;
                self.changed.notify_all();
                return;
            }
        }
    }
}
