//! `cargo xtask servers`: installs what the tests start as their own child processes.

use std::{
    env,
    path::Path,
    process::{Command, Stdio},
};

use crate::step::{self, Result, succeeds};

/// A program that the tests start, and the Debian package that has it. `openssl` makes certificates.
const PROGRAMS: &[(&str, &str)] = &[("openssl", "openssl"), ("redis-server", "redis-server")];

/// Installs what is missing; starts no service.
pub(crate) fn install() -> Result {
    let missing: Vec<_> = PROGRAMS.iter().filter(|(program, _)| !on_path(program)).collect();
    if missing.is_empty() {
        redis_is_new_enough()?;
        eprintln!("=== servers: all present");
        return Ok(());
    }
    let programs: Vec<_> = missing.iter().map(|(program, _)| *program).collect();
    let packages: Vec<_> = missing.iter().map(|(_, package)| *package).collect();
    if !on_path("apt-get") {
        return Err(elsewhere(&programs).into());
    }
    let mut install = as_root().ok_or_else(|| {
        format!(
            "{} must be installed by root:\n    apt-get install {}",
            programs.join(", "),
            packages.join(" ")
        )
    })?;
    install.args(["sh", "-c", INSTALL, "sh"]).args(packages).stdin(Stdio::null());
    step::run("servers", &mut install)?;
    match PROGRAMS.iter().find(|(program, _)| !on_path(program)) {
        Some((program, package)) => Err(format!("{package} was installed, but there is no {program}").into()),
        None => redis_is_new_enough(),
    }
}

/// The tests need 7.0, for its `--enable-debug-command`; Ubuntu 22.04 and Debian 11 have 6.0.
fn redis_is_new_enough() -> Result {
    let output = Command::new("redis-server").arg("--version").output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    match major_version(&text) {
        Some(major) if major >= 7 => Ok(()),
        _ => Err(format!("the tests need Redis 7.0 or later; redis-server says: {text}").into()),
    }
}

/// From `Redis server v=7.0.15 sha=…`.
fn major_version(text: &str) -> Option<u32> {
    text.split_once("v=")?.1.split('.').next()?.parse().ok()
}

/// The packages are the arguments. `policy-rc.d` is Debian's way to forbid that a package starts its
/// service; one that was there before is left alone.
const INSTALL: &str = r#"
set -eu
guard=/usr/sbin/policy-rc.d
if [ ! -e "$guard" ]; then
    trap 'rm -f "$guard"' EXIT
    printf '#!/bin/sh\nexit 101\n' > "$guard"
    chmod 755 "$guard"
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends -o Dpkg::Use-Pty=0 "$@"
"#;

fn elsewhere(programs: &[&str]) -> String {
    format!(
        "the tests start {} (Redis 7.0 or later), and this task can only install it on Debian and Ubuntu. \
         Please install it and run the task again:\n    \
         Fedora: dnf install redis openssl · Arch: pacman -S redis openssl · Alpine: apk add redis openssl",
        programs.join(" and ")
    )
}

/// A command to put in front: nothing for root, else `sudo` if it needs no password.
fn as_root() -> Option<Command> {
    let id = Command::new("id").arg("-u").output().ok()?;
    if id.stdout.trim_ascii() == b"0" {
        return Some(Command::new("env"));
    }
    let mut sudo = Command::new("sudo");
    sudo.arg("-n");
    succeeds(Command::new("sudo").args(["-n", "true"])).then_some(sudo)
}

/// Debian keeps some servers where an ordinary user's PATH does not look.
fn on_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/usr/local/sbin", "/sbin"];
    env::split_paths(&path).chain(usual.map(Into::into)).any(|folder| is_file(&folder.join(program)))
}

fn is_file(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_its_name_alone() {
        assert!(on_path("sh"));
        assert!(!on_path("no-such-program-of-polylock"));
        assert!(!on_path(""));
    }

    #[test]
    fn the_text_for_other_systems_names_what_is_missing() {
        assert!(elsewhere(&["redis-server"]).contains("start redis-server ("));
    }

    #[test]
    fn an_old_redis_is_told_from_a_new_one() {
        assert_eq!(major_version("Redis server v=6.0.16 sha=00000000:0"), Some(6));
        assert_eq!(major_version("Valkey server v=8.1.1 sha=00000000:0"), Some(8));
        assert_eq!(major_version("no server"), None);
    }

    #[test]
    fn the_install_script_is_a_script() {
        assert!(succeeds(Command::new("sh").args(["-n", "-c", INSTALL])));
    }
}
