//! What there is in the workspace.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::step::Result;

/// The workspace's root folder.
pub(crate) fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Where cargo puts this profile's output: beside this program.
pub(crate) fn output() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    Ok(program.parent().ok_or("this program has no folder")?.to_owned())
}

/// The facade's features, without `default`.
pub(crate) fn features() -> Result<Vec<String>> {
    let manifest = fs::read_to_string(root().join("Cargo.toml"))?;
    let section = manifest.split("\n[features]\n").nth(1).ok_or("Cargo.toml has no [features]")?;
    let section = section.split("\n[").next().unwrap_or_default();
    let names = section.lines().filter_map(|line| line.split_once(" = [")).map(|(name, _)| name.to_owned());
    Ok(names.filter(|name| name != "default").collect())
}

/// The names of the facade's examples.
pub(crate) fn examples() -> Result<Vec<String>> {
    names(&root().join("examples"), "rs")
}

/// The packages that run the conformance suite.
pub(crate) fn fixtures() -> Result<Vec<String>> {
    let runs = |package: &String| root().join(package).join("tests/conformance.rs").exists();
    Ok(names(root(), "")?.into_iter().filter(runs).collect())
}

/// The file names in a folder that have this extension, without it, sorted.
pub(crate) fn names(folder: &Path, extension: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().unwrap_or_default() == extension {
            names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_is_read_as_it_is() {
        assert!(features().unwrap().starts_with(&["file".into(), "memory".into(), "redis".into()]));
        assert!(examples().unwrap().contains(&"guarded_job".to_owned()));
        assert!(output().unwrap().exists());
    }
}
