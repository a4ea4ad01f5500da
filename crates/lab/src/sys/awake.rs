//! Processors that do not fall asleep: one that has to be woken for a packet is late with it, in a virtual machine by
//! milliseconds, because its host gives the processor to others meanwhile.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};

/// As long as this lives, idle processors wait awake. It ends with the process that holds it, however that ends, and
/// changes no setting (Documentation/power/pm_qos_interface.rst in Linux).
pub struct Awake {
    _request: File,
}

impl Awake {
    /// Fails without the right to it, and where the kernel has no such interface.
    pub fn hold() -> io::Result<Awake> {
        let mut request = OpenOptions::new().write(true).open("/dev/cpu_dma_latency")?;
        request.write_all(&0_i32.to_ne_bytes())?;
        Ok(Awake { _request: request })
    }
}
