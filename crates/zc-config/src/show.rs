//! The effective configuration, printed as a file that reads back to the same.

use core::fmt::Write as _;

use crate::units::{ByteSize, Millis};
use crate::{Compression, Config, Fingerprint, Mode, RegionSize, VolumeConfig};

impl Config {
    /// The configuration as TOML, every key written out.
    #[must_use]
    pub fn effective_toml(&self) -> String {
        let mut out = String::new();
        self.show_cache(&mut out);
        for volume in &self.volumes {
            show_volume(&mut out, volume);
        }
        let nbd = &self.nbd;
        let listen: Vec<_> = nbd.listen.iter().map(|address| format!("\"{address}\"")).collect();
        let unix: Vec<_> = nbd.unix.iter().map(|path| text(&path.to_string_lossy())).collect();
        line(&mut out, "\n[nbd]", "");
        line(&mut out, "listen", &format!("[{}]", listen.join(", ")));
        line(&mut out, "unix", &format!("[{}]", unix.join(", ")));
        line(&mut out, "connections_max", &nbd.connections_max.to_string());
        line(&mut out, "requests_in_flight_max", &nbd.requests_in_flight_max.to_string());
        line(&mut out, "bytes_in_flight_max", &size(nbd.bytes_in_flight_max));
        line(&mut out, "handshake_timeout", &text(&Millis(nbd.handshake_timeout_ms).to_string()));
        line(&mut out, "\n[control]", "");
        line(&mut out, "socket", &text(&self.control.socket.to_string_lossy()));
        line(&mut out, "\n[log]", "");
        line(&mut out, "level", &text(&self.log.level));
        out
    }

    fn show_cache(&self, out: &mut String) {
        let cache = &self.cache;
        line(out, "[cache]", "");
        line(out, "path", &text(&cache.path.to_string_lossy()));
        if let Some(size) = cache.size {
            line(out, "size", &text(&size.to_string()));
        }
        line(out, "state_dir", &text(&cache.state_dir.to_string_lossy()));
        line(out, "weu_size", &size(cache.weu_bytes.into()));
        line(out, "extent_size", &size(cache.extent_bytes.into()));
        show_codec(out, cache.compression, cache.compression_level);
        let fingerprint = match cache.fingerprint {
            Fingerprint::Blake3 => "blake3",
            Fingerprint::Sha1 => "sha1",
        };
        line(out, "fingerprint", &text(fingerprint));
        line(out, "fingerprint_index_ratio", &text(&format!("{} %", cache.fingerprint_index_percent)));
        line(out, "dedup", &cache.dedup.to_string());
        line(out, "discard", &cache.discard.to_string());
        line(out, "direct", &cache.direct.to_string());
        line(out, "max_ram", &size(cache.max_ram_bytes));
        line(out, "reduce_threads", &cache.reduce_threads.to_string());
        let cpus: Vec<_> = cache.reduce_cpus.iter().map(ToString::to_string).collect();
        line(out, "reduce_cpus", &text(&cpus.join(",")));
        line(out, "weu_max_age", &text(&Millis(cache.weu_max_age_ms).to_string()));
        line(out, "prefetch_threshold", &size(cache.prefetch_threshold_bytes.into()));
        line(out, "prefetch_max", &size(cache.prefetch_max_bytes.into()));
        line(out, "read_buffer", &size(cache.read_buffer_bytes.into()));
        line(out, "staging", &size(cache.staging_bytes.into()));
        line(out, "insert_max", &size(cache.insert_bytes_max.into()));
        line(out, "regions_active_max", &cache.regions_active_max.to_string());
        let region = match cache.region_size {
            RegionSize::Auto => text("auto"),
            RegionSize::Bytes(bytes) => size(bytes),
        };
        line(out, "region_size", &region);
        line(out, "policy", &text("lru"));
    }
}

fn show_volume(out: &mut String, volume: &VolumeConfig) {
    let mode = match volume.mode {
        Mode::WriteThrough => "write-through",
        Mode::WriteAround => "write-around",
        Mode::ReadOnly => "read-only",
        Mode::PassThrough => "pass-through",
    };
    let admission = match volume.admission {
        crate::Admission::Always => "always",
        crate::Admission::SecondTouch => "second-touch",
        crate::Admission::Never => "never",
    };
    line(out, "\n[[volume]]", "");
    line(out, "name", &text(&volume.name));
    line(out, "origin", &text(&volume.origin.to_string_lossy()));
    if let Some(bytes) = volume.create_bytes {
        line(out, "create_size", &size(bytes));
    }
    line(out, "mode", &text(mode));
    line(out, "admission", &text(admission));
    line(out, "dedup", &volume.dedup.to_string());
    show_codec(out, volume.compression, volume.compression_level);
    line(out, "index_share", &text(&format!("{} %", volume.index_share_percent)));
    if let Some(direct) = volume.direct {
        line(out, "direct", &direct.to_string());
    }
    line(out, "nbd.export", &volume.nbd.export.to_string());
    line(out, "nbd.description", &text(&volume.nbd.description));
    line(out, "nbd.read_only", &volume.nbd.read_only.to_string());
}

fn show_codec(out: &mut String, codec: Compression, level: u8) {
    let name = match codec {
        Compression::None => "none",
        Compression::Lz4 => "lz4",
        Compression::Zlib => "zlib",
        Compression::Zstd => "zstd",
    };
    line(out, "compression", &text(name));
    line(out, "compression_level", &level.to_string());
}

fn line(out: &mut String, key: &str, value: &str) {
    let written = if value.is_empty() { writeln!(out, "{key}") } else { writeln!(out, "{key} = {value}") };
    debug_assert!(written.is_ok(), "writing to a string");
}

fn text(value: &str) -> String {
    toml::Value::String(value.to_owned()).to_string()
}

fn size(bytes: u64) -> String {
    text(&ByteSize(bytes).to_string())
}
