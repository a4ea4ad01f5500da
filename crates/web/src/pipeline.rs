//! HEAD requests that are sent behind one another on one connection, before the first of them is answered.
//!
//! Invariants: an answer belongs to the request in its place, and each request has one at most; a connection is used
//! again only if all were answered and nothing else came.
//!
//! Not here: what becomes of requests that were not answered.

use crate::client::{Client, Request, Response};
use crate::error::Result;

impl Client {
    /// Sends HEADs over one connection, a new one if `is_new`, and tells their answers in their order, each as it
    /// comes. After an error those that were not told were not answered, as far as is known.
    pub fn heads(&self, requests: &[Request<'_>], is_new: bool, told: &mut dyn FnMut(Response)) -> Result<()> {
        debug_assert!(requests.iter().all(|request| request.method == "HEAD"));
        let heads = requests.iter().map(|request| self.head(request, "")).collect::<Result<Vec<_>>>()?;
        let kept = if is_new { None } else { self.take() };
        let mut connection = match kept {
            Some(kept) => kept,
            None => self.open()?,
        };
        // Each is a record of TLS of its own: XRootD reads one record at a time, and leaves what follows the first
        // request in it. A server that closes the connection may have answered some.
        let sent = heads.iter().try_for_each(|head| connection.write(head.as_bytes()));
        for left in (0..requests.len()).rev() {
            let head = connection.head(self.patience)?;
            if left == 0 {
                told(self.answer(connection, "HEAD", head, sent.is_ok())?);
                return Ok(());
            }
            let is_last = head.is_last();
            told(self.answer_between(head));
            if is_last {
                return Err(connection.lost());
            }
        }
        sent
    }
}
