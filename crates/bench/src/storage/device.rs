//! What is known about the storage below a directory: file system, device, queue, PCIe generation, and the settings of the
//! kernel that decide how small files fare. What cannot be read is None; nothing here fails a measurement.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use store::posix::facts;

#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Storage {
    pub file_system: String,
    pub mount_options: Option<String>,
    /// The content never leaves memory.
    pub is_memory: bool,
    pub devices: Vec<Device>,
    pub dirty_ratio: Option<u64>,
    pub dirty_background_ratio: Option<u64>,
    pub vfs_cache_pressure: Option<u64>,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Device {
    pub name: String,
    pub model: Option<String>,
    pub size_bytes: Option<u64>,
    pub is_rotational: Option<bool>,
    /// Requests that the block layer queues for the device.
    pub queue_depth: Option<u64>,
    pub scheduler: Option<String>,
    pub logical_block_bytes: Option<u64>,
    /// `write back` or `write through`.
    pub write_cache: Option<String>,
    pub pcie: Option<Pcie>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Pcie {
    pub generation: Option<u32>,
    pub lanes: Option<u32>,
    /// What device and slot could do at most.
    pub generation_max: Option<u32>,
}

impl Storage {
    pub fn below(dir: &Path) -> Storage {
        let opened = fs::File::open(dir).ok();
        let file_system = opened.as_ref().map_or("unknown", |dir| facts::file_system(dir.as_fd()));
        let number = fs::metadata(dir).map(|metadata| metadata.dev()).unwrap_or(0);
        let mount = Mount::of(number);
        let vm = |name: &str| read(Path::new("/proc/sys/vm").join(name))?.parse().ok();
        Storage {
            file_system: file_system.to_owned(),
            mount_options: mount.as_ref().map(|mount| mount.options.clone()),
            is_memory: opened.as_ref().is_some_and(|dir| facts::is_memory_backed(dir.as_fd())),
            devices: devices(Path::new("/sys"), number, mount.as_ref()),
            dirty_ratio: vm("dirty_ratio"),
            dirty_background_ratio: vm("dirty_background_ratio"),
            vfs_cache_pressure: vm("vfs_cache_pressure"),
        }
    }

    /// One line for a table.
    pub fn describe(&self) -> String {
        let mut parts = vec![self.file_system.clone()];
        if self.is_memory {
            parts.push("memory, no device".into());
        }
        parts.extend(self.devices.iter().map(Device::describe));
        parts.join(", ")
    }
}

impl Device {
    /// From the directory of a whole device in sysfs.
    fn read(dir: &Path) -> Device {
        let attribute = |name: &str| read(dir.join(name));
        let number = |name: &str| attribute(name)?.parse::<u64>().ok();
        Device {
            name: dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
            model: attribute("device/model"),
            // Sectors of sysfs are always 512 bytes.
            size_bytes: number("size").map(|sectors| sectors * 512),
            is_rotational: number("queue/rotational").map(|rotational| rotational == 1),
            queue_depth: number("queue/nr_requests"),
            scheduler: attribute("queue/scheduler").map(|list| chosen(&list)),
            logical_block_bytes: number("queue/logical_block_size"),
            write_cache: attribute("queue/write_cache"),
            pcie: Pcie::above(dir),
        }
    }

    fn describe(&self) -> String {
        let kind = match self.is_rotational {
            Some(true) => " (rotating, as it says)",
            Some(false) => " (not rotating)",
            None => "",
        };
        let model = self.model.as_ref().map(|model| format!(" {model}")).unwrap_or_default();
        let depth = self.queue_depth.map(|depth| format!(", queue of {depth}")).unwrap_or_default();
        let pcie = self.pcie.as_ref().map(Pcie::describe).unwrap_or_default();
        format!("{}{model}{kind}{depth}{pcie}", self.name)
    }
}

impl Pcie {
    /// From the nearest PCIe function above a device.
    fn above(device: &Path) -> Option<Pcie> {
        let path = fs::canonicalize(device).ok()?;
        let function = path.ancestors().find(|dir| dir.join("current_link_speed").exists())?;
        let attribute = |name: &str| read(function.join(name));
        Some(Pcie {
            generation: attribute("current_link_speed").and_then(|speed| generation(&speed)),
            lanes: attribute("current_link_width").and_then(|width| width.parse().ok()).filter(|lanes| *lanes > 0),
            generation_max: attribute("max_link_speed").and_then(|speed| generation(&speed)),
        })
    }

    fn describe(&self) -> String {
        let Some(generation) = self.generation else { return String::new() };
        let lanes = self.lanes.map(|lanes| format!(" x{lanes}")).unwrap_or_default();
        let below = match self.generation_max {
            Some(max) if max > generation => format!(", below its generation {max}"),
            _ => String::new(),
        };
        format!(", PCIe generation {generation}{lanes}{below}")
    }
}

/// From `16.0 GT/s PCIe`.
fn generation(speed: &str) -> Option<u32> {
    let transfers: f64 = speed.split_whitespace().next()?.parse().ok()?;
    // Each generation doubles the one before, counted generously: 2.5, 5, 8, 16, 32, 64.
    const SPEEDS: [f64; 6] = [2.5, 5.0, 8.0, 16.0, 32.0, 64.0];
    SPEEDS.iter().position(|known| (known - transfers).abs() < 0.1).map(|index| index as u32 + 1)
}

/// From `none [mq-deadline] kyber`.
fn chosen(list: &str) -> String {
    list.split(['[', ']']).nth(1).unwrap_or(list).to_owned()
}

/// The whole devices below a file system: partitions lead to their disk, volumes to what they are made of.
fn devices(sys: &Path, number: u64, mount: Option<&Mount>) -> Vec<Device> {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let by_number = sys.join(format!("dev/block/{major}:{minor}"));
    // File systems over several devices have a number that no device has; their source names one.
    let by_source = || {
        let name = Path::new(&mount?.source).strip_prefix("/dev").ok()?.to_owned();
        Some(sys.join("class/block").join(name))
    };
    let path = if by_number.exists() { Some(by_number) } else { by_source() };
    let mut found = Vec::new();
    if let Some(path) = path.and_then(|path| fs::canonicalize(path).ok()) {
        collect(&path, &mut found, 0);
    }
    found
}

fn collect(path: &Path, found: &mut Vec<Device>, level: u32) {
    /// Volumes upon volumes end well before.
    const LEVEL_MAX: u32 = 8;
    if level > LEVEL_MAX {
        return;
    }
    if path.join("partition").exists() {
        return path.parent().map_or((), |disk| collect(disk, found, level + 1));
    }
    let below: Vec<PathBuf> =
        fs::read_dir(path.join("slaves")).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    if below.is_empty() {
        let device = Device::read(path);
        if !found.iter().any(|known| known.name == device.name) {
            found.push(device);
        }
        return;
    }
    below.iter().filter_map(|dir| fs::canonicalize(dir).ok()).for_each(|dir| collect(&dir, found, level + 1));
}

struct Mount {
    options: String,
    source: String,
}

impl Mount {
    fn of(number: u64) -> Option<Mount> {
        let wanted = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
        Mount::parse(&fs::read_to_string("/proc/self/mountinfo").ok()?, &wanted)
    }

    fn parse(table: &str, wanted: &str) -> Option<Mount> {
        let line = table.lines().rfind(|line| line.split(' ').nth(2) == Some(wanted))?;
        // A number of optional fields stands before the dash.
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ').skip(1);
        let source = after.next()?.to_owned();
        let options = [before.split(' ').nth(5)?, after.next()?].join(",");
        Some(Mount { options, source })
    }
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_of_an_nvme_disk_leads_to_the_disk_and_its_link() {
        let sys = tempfile::tempdir().unwrap();
        let function = sys.path().join("devices/pci0000:00/0000:00:01.0");
        let disk = function.join("nvme/nvme0/nvme0n1");
        for (path, text) in [
            (function.join("current_link_speed"), "16.0 GT/s PCIe\n"),
            (function.join("current_link_width"), "4\n"),
            (function.join("max_link_speed"), "32.0 GT/s PCIe\n"),
            (disk.join("queue/rotational"), "0\n"),
            (disk.join("queue/nr_requests"), "1023\n"),
            (disk.join("queue/scheduler"), "[none] mq-deadline\n"),
            (disk.join("size"), "2048\n"),
            (disk.join("device/model"), "Model 1   \n"),
            (disk.join("nvme0n1p1/partition"), "1\n"),
        ] {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        fs::create_dir_all(sys.path().join("dev/block")).unwrap();
        std::os::unix::fs::symlink(disk.join("nvme0n1p1"), sys.path().join("dev/block/259:1")).unwrap();
        let found = devices(sys.path(), rustix::fs::makedev(259, 1), None);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].size_bytes, found[0].scheduler.as_deref()), (Some(1 << 20), Some("none")));
        assert_eq!(
            found[0].describe(),
            "nvme0n1 Model 1 (not rotating), queue of 1023, PCIe generation 4 x4, below its generation 5"
        );
    }

    #[test]
    fn a_line_of_the_mount_table_is_read_past_its_optional_fields() {
        let table = "30 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/root rw,discard\n";
        let mount = Mount::parse(table, "254:0").unwrap();
        assert_eq!((&mount.options[..], &mount.source[..]), ("rw,relatime,rw,discard", "/dev/root"));
        assert!(Mount::parse(table, "254:1").is_none());
    }

    #[test]
    fn this_directory_has_a_file_system() {
        assert_ne!(Storage::below(Path::new(".")).file_system, "");
        assert_eq!(Storage::below(Path::new("/does/not/exist")).devices, []);
    }
}
