//! Where a picture or a page goes without -o: beside the reel, by its name.

use std::path::{Path, PathBuf};

/// The file for reels: `a/x.reel` gives `a/x.png`, `x.reel` and `y.reel` give `x-y.png`, more reels `x-and-2-more.png`.
pub(crate) fn beside(reels: &[PathBuf], ending: &str) -> PathBuf {
    let folder = reels.first().and_then(|r| whole(r).parent().map(Path::to_owned)).unwrap_or_default();
    let names: Vec<String> = reels.iter().map(|r| stem(r)).collect();
    let name = match &names[..] {
        [first, second] => format!("{first}-{second}"),
        [first, others @ ..] if !others.is_empty() => format!("{first}-and-{}-more", others.len()),
        _ => names.concat(),
    };
    folder.join(format!("{name}.{ending}"))
}

/// The path of a reel with a name, which `.` and `..` do not have.
fn whole(reel: &Path) -> PathBuf {
    if reel.file_name().is_some() { reel.to_owned() } else { reel.canonicalize().unwrap_or_else(|_| reel.to_owned()) }
}

/// The name of a reel without `.reel`.
fn stem(reel: &Path) -> String {
    let name = whole(reel).file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    name.strip_suffix(".reel").map(str::to_owned).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_lie_beside_their_reels() {
        let of = |reels: &[&str]| {
            let reels: Vec<PathBuf> = reels.iter().map(PathBuf::from).collect();
            beside(&reels, "png").display().to_string()
        };
        assert_eq!(of(&["x.reel"]), "x.png");
        assert_eq!(of(&["a/x.reel/"]), "a/x.png");
        assert_eq!(of(&["/srv/plain"]), "/srv/plain.png");
        assert_eq!(of(&["a/x.reel", "b/y.reel"]), "a/x-y.png");
        assert_eq!(of(&["x.reel", "y.reel", "z.reel"]), "x-and-2-more.png");
        let here = std::env::current_dir().unwrap_or_default();
        assert_eq!(of(&["."]), format!("{}.png", here.display()));
    }
}
