//! Patches on a backend, applied to a copy of the tree so that a broken lock never lies in yours.
//!
//! A patch starts with the line `# CASE`: the case of that backend's conformance suite that must fail.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::trial::{Fault, Mutant, Patched};
use crate::{
    step::{Result, shown},
    workspace,
};

pub(crate) fn mutants() -> Result<Vec<Mutant>> {
    let mut mutants = Vec::new();
    let output = workspace::output()?.join("../mutants");
    let tree = output.join("tree");
    copy_tree(&tree)?;
    for package in workspace::fixtures()? {
        let folder = workspace::root().join(&package).join("mutants");
        if !folder.is_dir() {
            continue;
        }
        for name in workspace::names(&folder, "patch")? {
            let patch = folder.join(&name).with_extension("patch");
            let text = fs::read_to_string(&patch)?;
            let case = text.lines().next().and_then(|line| line.strip_prefix("# "));
            mutants.push(Mutant {
                kind: "backend",
                package: package.clone(),
                case: case
                    .ok_or_else(|| format!("{} does not start with # CASE", patch.display()))?
                    .trim()
                    .into(),
                target: "conformance".into(),
                fault: Fault::Patch {
                    tree: tree.clone(),
                    output: output.join("backend"),
                    patched: apply(&tree, &patch, &text)?,
                },
                name,
            });
        }
    }
    Ok(mutants)
}

/// What git would commit, as it lies in the work tree.
fn copy_tree(tree: &Path) -> Result {
    if tree.exists() {
        fs::remove_dir_all(tree)?;
    }
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let listed = Command::new("git").args(arguments).current_dir(workspace::root()).output()?;
    for path in String::from_utf8(listed.stdout)?.split('\0').filter(|path| !path.is_empty()) {
        let (from, to) = (workspace::root().join(path), tree.join(path));
        if from.is_file() {
            fs::create_dir_all(to.parent().ok_or("a file has no folder")?)?;
            fs::copy(from, to)?;
        }
    }
    Ok(())
}

/// The files of a patch, before and after; the tree stays as it is.
fn apply(tree: &Path, patch: &Path, text: &str) -> Result<Vec<Patched>> {
    let paths = text.lines().filter_map(|line| line.strip_prefix("+++ b/"));
    let paths: Vec<PathBuf> = paths.map(|path| tree.join(path.trim())).collect();
    let read = |paths: &[PathBuf]| paths.iter().map(fs::read_to_string).collect::<std::io::Result<Vec<_>>>();
    let sound = read(&paths).map_err(|e| format!("{}: {e}", patch.display()))?;
    let mut git = Command::new("git");
    // The copy lies inside the repository, where git would look for the paths from the repository's root.
    git.env("GIT_CEILING_DIRECTORIES", tree.parent().unwrap_or(tree)).current_dir(tree);
    let applied = git.args(["apply", "--whitespace=nowarn"]).arg(patch).output()?;
    if !applied.status.success() {
        let text = String::from_utf8_lossy(&applied.stderr);
        return Err(format!("{} no longer applies; renew it:\n{text}", shown(&git)).into());
    }
    let faulty = read(&paths)?;
    for (path, sound) in paths.iter().zip(&sound) {
        fs::write(path, sound)?;
    }
    let pairs = paths.into_iter().zip(sound.into_iter().zip(faulty));
    Ok(pairs.map(|(path, (sound, faulty))| Patched { path, sound, faulty }).collect())
}
