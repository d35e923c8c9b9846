//! `cargo xtask servers`: installs what the tests start as their own child processes.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    step::{self, Result, succeeds},
    workspace,
};

/// What the tests start or the build needs, and the Debian package that has it.
const PARTS: &[(Part, &str)] = &[
    // Makes the certificates.
    (Part::Program("openssl"), "openssl"),
    (Part::Program("redis-server"), "redis-server"),
    // etcd's client is generated from its interface files.
    (Part::Program("protoc"), "protobuf-compiler"),
    (Part::File("/usr/include/google/protobuf/descriptor.proto"), "libprotobuf-dev"),
    (Part::Program("etcd"), "etcd-server"),
    (Part::Program("etcdctl"), "etcd-client"),
    (Part::Program("mariadbd"), "mariadb-server-core"),
    (Part::Program("mariadb"), "mariadb-client-core"),
    (Part::File("/usr/lib/galera/libgalera_smm.so"), "galera-4"),
    (Part::Program("javac"), "default-jdk-headless"),
    (Part::File("/usr/share/java/zookeeper.jar"), "zookeeper"),
    (Part::File("/usr/share/java/slf4j-simple.jar"), "libslf4j-java"),
    // Other clients of the same servers, which we exclude and which exclude us.
    (Part::File("/usr/share/java/curator-recipes.jar"), "libcurator-recipes-java"),
    (Part::File("/usr/share/java/curator-framework.jar"), "libcurator-framework-java"),
    (Part::File("/usr/share/java/curator-client.jar"), "libcurator-client-java"),
    (Part::File("/usr/lib/python3/dist-packages/kazoo/__init__.py"), "python3-kazoo"),
];

/// Servers that no package of this Debian has: the script that unpacks one into a folder, the program that
/// is there then, and the variable that tells the tests where it is.
const UNPACKED: &[Unpacked] = &[
    Unpacked {
        name: "etcd-3.5",
        script: include_str!("servers/etcd35.sh"),
        program: "etcd",
        variable: "POLYLOCK_ETCD",
        optional: false,
    },
    // From a suite that moves: there are days when it cannot be had.
    Unpacked {
        name: "mysql-9",
        script: include_str!("servers/mysql9.sh"),
        program: "mysqld",
        variable: "POLYLOCK_MYSQLD",
        optional: true,
    },
];

#[derive(Clone, Copy, Debug)]
enum Part {
    Program(&'static str),
    File(&'static str),
}

struct Unpacked {
    name: &'static str,
    script: &'static str,
    program: &'static str,
    variable: &'static str,
    optional: bool,
}

/// Where the tests find what is not on the path: variables and their values.
pub(crate) type Places = Vec<(&'static str, PathBuf)>;

/// Installs what is missing; starts no service.
pub(crate) fn install() -> Result<Places> {
    packages()?;
    redis_is_new_enough()?;
    let mut places = Places::new();
    for server in UNPACKED {
        match server.unpack() {
            Ok(program) => places.push((server.variable, program)),
            Err(error) if server.optional => eprintln!(
                "\n!!! {} cannot be had ({error}): THE TESTS ON IT ARE LEFT OUT. All else runs.\n",
                server.name
            ),
            Err(error) => return Err(error),
        }
    }
    eprintln!("=== servers: all present");
    for (variable, program) in &places {
        eprintln!("    export {variable}={}", program.display());
    }
    Ok(places)
}

fn packages() -> Result {
    let missing: Vec<_> = PARTS.iter().filter(|(part, _)| !part.is_present()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<_> = missing.iter().map(|(_, package)| *package).collect();
    if !on_path("apt-get") {
        return Err(elsewhere(&packages).into());
    }
    let mut install = as_root().ok_or_else(|| {
        let packages = packages.join(" ");
        format!("some of what the tests need must be installed by root:\n    apt-get install {packages}")
    })?;
    install.args(["sh", "-c", INSTALL, "sh"]).args(packages).stdin(Stdio::null());
    step::run_as("servers", "apt-get install …", &mut install)?;
    match PARTS.iter().find(|(part, _)| !part.is_present()) {
        Some((part, package)) => Err(format!("{package} was installed, but there is no {part:?}").into()),
        None => Ok(()),
    }
}

impl Part {
    fn is_present(self) -> bool {
        match self {
            Self::Program(name) => on_path(name),
            Self::File(path) => is_file(Path::new(path)),
        }
    }
}

impl Unpacked {
    fn unpack(&self) -> Result<PathBuf> {
        // Beside the profiles' folders, so that one copy serves them all.
        let folder = workspace::output()?.join("../servers").join(self.name);
        let program = folder.join(self.program);
        if !is_file(&program) {
            if !on_path("apt-get") {
                return Err(format!("{} is unpacked from Debian's packages, with apt-get", self.name).into());
            }
            let mut unpack = Command::new("bash");
            unpack.args(["-c", self.script, "bash"]).arg(&folder).stdin(Stdio::null());
            step::run_as(self.name, "unpacking the server", &mut unpack)?;
        }
        Ok(program.canonicalize()?)
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

fn elsewhere(packages: &[&str]) -> String {
    format!(
        "this task can install servers on Debian and Ubuntu only. Please install what these packages of \
         Debian have, and run the task again:\n    {}\n\
         The tests of one backend need its server alone: cargo nextest run -p lock-redis",
        packages.join(" ")
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
        assert!(elsewhere(&["redis-server", "zookeeper"]).contains("redis-server zookeeper\n"));
    }

    #[test]
    fn an_old_redis_is_told_from_a_new_one() {
        assert_eq!(major_version("Redis server v=6.0.16 sha=00000000:0"), Some(6));
        assert_eq!(major_version("Valkey server v=8.1.1 sha=00000000:0"), Some(8));
        assert_eq!(major_version("no server"), None);
    }

    #[test]
    fn the_install_scripts_are_scripts() {
        assert!(succeeds(Command::new("sh").args(["-n", "-c", INSTALL])));
        for server in UNPACKED {
            assert!(succeeds(Command::new("bash").args(["-n", "-c", server.script])), "{}", server.name);
        }
    }
}
