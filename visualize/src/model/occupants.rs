//! What lies in the bands of the offset axis: how many bios each has, and of what.

use std::{cmp::Reverse, collections::HashMap};

use ioreel_analyze::events::bios::each_bio;
use ioreel_traces::{
    Reel, Text,
    rows::{Bio as BioRow, File},
};

use crate::{
    Result,
    canvas::font,
    model::{offset_axis::OffsetAxis, survey::Survey},
};

/// Contents named in a label.
const MOST_PARTS: usize = 3;
/// Contents below this share of a band's bytes are not named.
const LEAST_SHARE: f64 = 0.05;
/// Files told apart in a band. Further ones only count as bytes of data.
const MOST_FILES: usize = 100_000;

/// A file: the number of its reel, and its id there.
type FileKey = (usize, i64);

/// What the bios of a band carry.
#[derive(Clone, Debug, Default)]
struct Band {
    bios: u64,
    /// Bytes by class.
    contents: HashMap<Text, u64>,
    /// Bytes of data by file.
    files: HashMap<FileKey, u64>,
}

impl Band {
    /// The file with most bytes.
    fn largest(&self) -> Option<FileKey> {
        self.files.iter().max_by_key(|(file, bytes)| (**bytes, Reverse(**file))).map(|(file, _)| *file)
    }
}

/// Divides the axis by the number of bios in each band, and names what lies there. An axis of one band, and reels without
/// bios, stay as they are.
pub(crate) fn describe(axis: &mut OffsetAxis, reels: &[Reel], surveys: &[Survey]) -> Result<()> {
    if axis.bands.len() < 2 || reels.iter().all(|r| r.count::<BioRow>() == 0) {
        return Ok(());
    }
    let mut bands = vec![Band::default(); axis.bands.len()];
    for (i, (reel, survey)) in reels.iter().zip(surveys).enumerate() {
        let Some(device) = &survey.device else { continue };
        each_bio(reel, |b| {
            let held = b.dev == device.dev && b.len_bytes > 0 && survey.choice.holds(b.queue_ns);
            let place = axis.bands.partition_point(|band| band.sectors.to <= b.sector);
            let band = axis.bands.get(place).filter(|band| held && b.sector >= band.sectors.from);
            let Some(band) = band.and_then(|_| bands.get_mut(place)) else { return };
            let bytes = u64::try_from(b.len_bytes).unwrap_or(0);
            band.bios += 1;
            *band.contents.entry(b.content.clone()).or_default() += bytes;
            if let Some(file) = b.file.filter(|_| &**b.content == "data")
                && (band.files.len() < MOST_FILES || band.files.contains_key(&(i, file)))
            {
                *band.files.entry((i, file)).or_default() += bytes;
            }
        })?;
    }
    let named: Vec<FileKey> = bands.iter().filter_map(Band::largest).collect();
    let names = names(reels, &named)?;
    let mut fstypes: Vec<&str> = surveys.iter().map(|s| s.fstype.as_str()).collect();
    fstypes.dedup();
    let fstype = if let [one] = fstypes[..] { one } else { "" };
    axis.labels = bands.iter().map(|band| label(band, fstype, &names)).collect();
    axis.share_by(&bands.iter().map(|b| b.bios).collect::<Vec<_>>());
    Ok(())
}

/// Last parts of the paths of these files.
fn names(reels: &[Reel], wanted: &[FileKey]) -> Result<HashMap<FileKey, String>> {
    let mut names = HashMap::new();
    for (i, reel) in reels.iter().enumerate().filter(|(i, _)| wanted.iter().any(|(reel, _)| reel == i)) {
        for row in reel.rows::<File>() {
            let row = row?;
            if wanted.contains(&(i, row.file)) {
                let path = row.path.unwrap_or_default();
                let name = path.rsplit('/').next().unwrap_or_default();
                names.insert((i, row.file), font::showable(name));
            }
        }
    }
    Ok(names)
}

fn label(band: &Band, fstype: &str, names: &HashMap<FileKey, String>) -> String {
    let all: u64 = band.contents.values().sum();
    let mut parts: Vec<(&Text, u64)> = band.contents.iter().map(|(content, bytes)| (content, *bytes)).collect();
    parts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    let shown = parts.into_iter().filter(|(_, bytes)| *bytes as f64 >= all as f64 * LEAST_SHARE).take(MOST_PARTS);
    let text = |content: &str| match content {
        "data" => of_files(band, names),
        "journal" => format!("{fstype} journal").trim_start().to_owned(),
        "" => "unknown".into(),
        other => other.replace('_', " "),
    };
    shown.map(|(content, _)| text(content)).collect::<Vec<_>>().join(" · ")
}

fn of_files(band: &Band, names: &HashMap<FileKey, String>) -> String {
    let largest = band.largest().and_then(|file| names.get(&file)).filter(|name| !name.is_empty());
    match (band.files.len(), largest) {
        (0, _) => "data".into(),
        (1, Some(name)) => name.clone(),
        (n, Some(name)) => format!("{n} files, most {name}"),
        (n, None) => format!("{n} files"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_name_what_a_band_holds() {
        let mut band = Band::default();
        let names = HashMap::from([((0, 7), "s.db".to_owned())]);
        band.contents.extend([("journal".into(), 90), ("data".into(), 10), ("bitmap".into(), 1)]);
        assert_eq!(label(&band, "ext4", &names), "ext4 journal · data");
        band.files.insert((0, 7), 10);
        assert_eq!(label(&band, "", &names), "journal · s.db");
        band.files.insert((0, 8), 9);
        band.contents.insert("inode_table".into(), 1000);
        assert_eq!(label(&band, "ext4", &names), "inode table · ext4 journal");
        band.contents.insert("data".into(), 2000);
        assert_eq!(label(&band, "ext4", &names), "2 files, most s.db · inode table");
    }
}
