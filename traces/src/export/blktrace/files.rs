//! The files of a block trace: one per device and CPU, or one dump.

use std::{
    collections::BTreeMap,
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use crate::{
    ReelError,
    blktrace::Record,
    export::{ExportError, Result, create, keep},
    private::{Folder, Output},
};

/// Maximum CPU number. A larger number is not a CPU.
const MOST_CPUS: u32 = 65_536;

/// Output files, created when the first record for them arrives.
pub(super) struct Files {
    output: PathBuf,
    folder: bool,
    dump: bool,
    open: BTreeMap<(String, u32), BufWriter<Output>>,
    /// Empty files, created because blkparse stops at the first missing CPU.
    fillers: Vec<Output>,
}

impl Files {
    pub(super) fn new(output: &Path, dump: bool) -> Result<Self> {
        let folder = output.is_dir() || output.as_os_str().as_encoded_bytes().ends_with(b"/");
        if dump && folder {
            return Err(ExportError::refused(output, "a dump is one file, not a folder; name a file"));
        }
        if folder {
            Folder::open_or_create(output).map_err(ReelError::io(output, "making the folder"))?;
        }
        Ok(Self { output: output.into(), folder, dump, open: BTreeMap::new(), fillers: Vec::new() })
    }

    pub(super) fn dump(&self) -> bool {
        self.dump
    }

    /// Writes a record of the trace `trace`.
    pub(super) fn write(&mut self, trace: &str, record: &Record, payload: &[u8]) -> Result<()> {
        let key = if self.dump { (String::new(), 0) } else { (trace.to_owned(), record.cpu) };
        if !self.open.contains_key(&key) {
            if record.cpu >= MOST_CPUS {
                let why = format!("impossible CPU number {}", record.cpu);
                return Err(ExportError::refused(&self.output, why));
            }
            let path = self.path(trace, record.cpu)?;
            if self.open.len() >= 1000 {
                return Err(ExportError::refused(
                    &path,
                    "too many files (more than 1000 CPUs and devices); use --dump for one file",
                ));
            }
            let file = create(&path)?;
            self.open.insert(key.clone(), BufWriter::with_capacity(256 * 1024, file));
        }
        if let Some(file) = self.open.get_mut(&key) {
            let written = file.write_all(&record.to_bytes()).and_then(|()| file.write_all(payload));
            written.map_err(ReelError::io(file.get_ref().path(), "writing the trace"))?;
        }
        Ok(())
    }

    fn path(&self, trace: &str, cpu: u32) -> Result<PathBuf> {
        if self.dump {
            return Ok(self.output.clone());
        }
        if self.folder {
            // The name comes from a reel, which may be hostile.
            let plain = trace.replace(['/', '\0'], "_");
            return Ok(self.output.join(format!("{plain}.blktrace.{cpu}")));
        }
        if let Some((other, _)) = self.open.keys().find(|(name, _)| name != trace) {
            let why = format!("the reel contains several devices ({other}, {trace}); name a folder, ending in /");
            return Err(ExportError::refused(&self.output, why));
        }
        let mut name = self.output.clone().into_os_string();
        name.push(format!(".blktrace.{cpu}"));
        Ok(name.into())
    }

    /// Completes the files and tells their names. Without this, they are removed again.
    pub(super) fn finish(mut self) -> Result<Vec<PathBuf>> {
        let mut highest: BTreeMap<String, u32> = BTreeMap::new();
        for ((trace, cpu), file) in &mut self.open {
            let written = file.flush();
            written.map_err(ReelError::io(file.get_ref().path(), "writing the trace"))?;
            highest.insert(trace.clone(), *cpu);
        }
        if !self.dump {
            for (trace, cpu) in highest {
                for missing in (0..cpu).filter(|c| !self.open.contains_key(&(trace.clone(), *c))).collect::<Vec<_>>() {
                    let path = if self.folder {
                        self.output.join(format!("{}.blktrace.{missing}", trace.replace(['/', '\0'], "_")))
                    } else {
                        let mut name = self.output.clone().into_os_string();
                        name.push(format!(".blktrace.{missing}"));
                        name.into()
                    };
                    self.fillers.push(create(&path)?);
                }
            }
        }
        let mut paths = Vec::new();
        for file in self.open.into_values() {
            let path = file.get_ref().path().to_owned();
            keep(file.into_inner().map_err(|e| ReelError::io(&path, "writing the trace")(e.into_error()))?)?;
            paths.push(path);
        }
        for filler in self.fillers {
            paths.push(filler.path().to_owned());
            keep(filler)?;
        }
        Ok(paths)
    }
}
