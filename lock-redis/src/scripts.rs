use redis::{Cmd, Script, cmd};

/// A script of ours: its text, and the hash under which servers remember it.
pub(crate) struct LuaScript {
    text: &'static str,
    hash: String,
}

impl LuaScript {
    fn new(text: &'static str) -> Self {
        Self { text, hash: Script::new(text).get_hash().into() }
    }

    /// A call by hash: what is sent as long as the server remembers the script.
    pub(crate) fn call(&self, keys: &[&str], args: &[&str]) -> Cmd {
        with_arguments("EVALSHA", &self.hash, keys, args)
    }

    /// A call by text, after which the server remembers the script.
    pub(crate) fn call_with_text(&self, keys: &[&str], args: &[&str]) -> Cmd {
        with_arguments("EVAL", self.text, keys, args)
    }
}

fn with_arguments(command: &str, script: &str, keys: &[&str], args: &[&str]) -> Cmd {
    let mut cmd = cmd(command);
    cmd.arg(script).arg(keys.len()).arg(keys).arg(args);
    cmd
}

/// The three verbs, each one script: each is decided in one step on the server.
pub(crate) struct Scripts {
    pub(crate) acquire: LuaScript,
    pub(crate) renew: LuaScript,
    pub(crate) release: LuaScript,
}

impl Scripts {
    pub(crate) fn new() -> Self {
        Self {
            acquire: LuaScript::new(concat!(
                include_str!("scripts/queue.lua"),
                include_str!("scripts/acquire.lua")
            )),
            renew: LuaScript::new(include_str!("scripts/renew.lua")),
            release: LuaScript::new(concat!(
                include_str!("scripts/queue.lua"),
                include_str!("scripts/release.lua")
            )),
        }
    }
}
