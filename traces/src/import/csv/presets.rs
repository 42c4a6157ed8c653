//! The columns of public data sets.

use super::{
    Rows,
    fields::{self, Field},
    values::{Extra, Separator},
};

/// A public data set whose columns are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// MSR Cambridge.
    Msr,
    /// Alibaba block traces.
    Alibaba,
    /// Tencent block storage.
    Tencent,
    /// FIU home directories and mail.
    Fiu,
    /// Storage Performance Council (UMass).
    Spc,
    /// SYSTOR '17, traces of a virtual desktop infrastructure.
    Systor,
    /// CloudPhysics, as CSV.
    Cloudphysics,
}

/// How the lines of a file are read.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) columns: Vec<Option<Field>>,
    pub(super) separator: Separator,
    pub(super) extra: Extra,
    /// Meaning of words in the operation column, before the usual ones.
    pub(super) ops: Vec<(String, String)>,
}

/// The head line of the second form of CloudPhysics.
const CLOUDPHYSICS_HEAD: &str = "version,time,op,size,lbn";

impl Preset {
    /// Every preset.
    pub const ALL: [Self; 7] =
        [Self::Msr, Self::Alibaba, Self::Tencent, Self::Fiu, Self::Spc, Self::Systor, Self::Cloudphysics];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Msr => "msr",
            Self::Alibaba => "alibaba",
            Self::Tencent => "tencent",
            Self::Fiu => "fiu",
            Self::Spc => "spc",
            Self::Systor => "systor",
            Self::Cloudphysics => "cloudphysics",
        }
    }

    /// The layout of a file with this first line.
    pub(super) fn layout(self, first: &[u8]) -> Result<Layout, String> {
        let (columns, fewer) = match self {
            Self::Msr => ("issue_100ns,host,dev,op,offset_bytes,len_bytes,d2c_100ns", 0),
            Self::Alibaba => ("dev,op,offset_bytes,len_bytes,issue_us", 0),
            Self::Tencent => ("issue_s,sector,len_sectors,op,dev", 0),
            Self::Fiu => ("issue_ns,pid,comm,sector,len_sectors,op,major,minor,-", 1),
            Self::Spc => ("dev,sector,len_bytes,op,issue_s", 0),
            Self::Systor => ("issue_s,d2c_s,op,dev,offset_bytes,len_bytes", 0),
            Self::Cloudphysics if self.is_headed(first) => ("-,issue_s,op,len_bytes,sector", 0),
            Self::Cloudphysics => ("issue_us,sector,op,len_bytes", 0),
        };
        let names: Vec<String> = columns.split(',').map(str::to_owned).collect();
        let separator = if self == Self::Fiu { Separator::Blanks } else { Separator::Byte(b',') };
        let ops = match self {
            Self::Tencent => &[("0", "read"), ("1", "write")][..],
            // Commands of SCSI, in decimal and in hexadecimal.
            Self::Cloudphysics => &[
                ("8", "read"),
                ("28", "read"),
                ("40", "read"),
                ("88", "read"),
                ("136", "read"),
                ("168", "read"),
                ("10", "write"),
                ("2a", "write"),
                ("42", "write"),
                ("8a", "write"),
                ("138", "write"),
                ("170", "write"),
                ("53", "flush"),
                ("145", "flush"),
            ],
            _ => &[],
        };
        Ok(Layout {
            columns: fields::columns(&names, Rows::Block, false)?,
            separator,
            extra: Extra { more: self == Self::Spc, fewer },
            ops: ops.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect(),
        })
    }

    fn is_headed(self, first: &[u8]) -> bool {
        first.trim_ascii().eq_ignore_ascii_case(CLOUDPHYSICS_HEAD.as_bytes())
    }
}
