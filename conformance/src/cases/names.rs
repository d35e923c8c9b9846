//! Names: every name is taken or refused alike everywhere, and no two stand for one lock.

use std::{sync::Arc, time::Duration};

use lock_core::{ErrorKind, Name, Released};
use tokio::task::JoinSet;

use super::renewal::patient;
use crate::{
    Need, Stage,
    case::{Case, Outcome, case},
};

pub(crate) const CASES: &[Case] = &[
    case!(what_is_no_name_is_refused_before_anything_is_sent),
    case!(names_that_look_alike_are_held_at_the_same_time, Need::OwnServer),
    case!(a_release_of_one_name_frees_no_other, Need::OwnServer),
    case!(a_waiter_is_woken_whatever_the_name, Need::OwnServer, Need::Promised(lock_core::Promise::Push)),
    case!(a_name_below_another_is_no_contender, Need::OwnServer),
];

/// Names that servers, file systems, URLs and collations are known to take for one another.
fn names() -> Vec<Name> {
    let mut names: Vec<String> = [
        "a",
        "A",
        "à",
        "á",
        "a\u{301}",
        "a ",
        "a  ",
        " a",
        "a.",
        "a/",
        "/a",
        "a//",
        "a\\",
        "ß",
        "ss",
        "ſ",
        "i",
        "ı",
        "I",
        "İ",
        // Paths and URLs.
        "/",
        "//",
        ".",
        "..",
        "../a",
        "./a",
        "file:///a",
        "x",
        "x/0",
        "x/",
        "a/b",
        "a%2Fb",
        "a%2fb",
        "a%252Fb",
        "%2F",
        "%",
        "%00",
        "+",
        "~",
        "zookeeper",
        "/zookeeper",
        "CON",
        "nul",
        "-",
        "--help",
        "*",
        "?",
        "[a]",
        "#",
        "&",
        "a?b=c",
        "a:b",
        "'",
        "\"",
        "`",
        ";",
        "--",
        "$HOME",
        "{}",
        "{a}b",
        "{a}",
        "}{",
        "{",
        "}",
        "a{b",
        "a}b",
        "{b}a",
        // What a backend may call its own.
        "x:fence",
        "x:wake",
        "x.lock",
        "x.tmp",
        ".alive",
        ".processes",
        "x:fence:fence",
        "{x}:fence",
        "polylock:{x}",
        "lock",
        "locks",
        "_",
        // The edges of Unicode.
        "\u{d7ff}",
        "\u{fff0}",
        "\u{e000}",
        "\u{ffff}",
        "\u{10ffff}",
        "\u{a0}",
        "\u{200b}",
        "\u{202e}",
        "\u{feff}",
        "\u{feff}a",
        "😀",
        // Equal in CRC-32.
        "plumless",
        "buckeroo",
    ]
    .map(str::to_owned)
    .into();
    let start = "n".repeat(64);
    for (end, length) in [("y", 200), ("z", 200), ("y", 255), ("z", 255), ("y", 65), ("z", 65)] {
        names.push(format!("{start}{}{end}", "m".repeat(length - 65)));
    }
    names.push(start);
    names.push("/".repeat(255));
    names.push("é".repeat(127));
    names.into_iter().map(|name| Name::new(&name).unwrap_or_else(|error| panic!("{error}"))).collect()
}

async fn what_is_no_name_is_refused_before_anything_is_sent(stage: Stage) -> Outcome {
    let client = stage.client().await?;
    let sent = client.link.requests().total;
    let (too_long, far_too_long, long_in_bytes) = ("x".repeat(256), "x".repeat(10_240), "é".repeat(128));
    let bad = [
        "",
        "\0",
        "a\0b",
        "\u{1f}",
        "\u{7f}",
        "\u{85}",
        "a\n",
        "\ta",
        &too_long,
        &far_too_long,
        &long_in_bytes,
    ];
    for name in bad {
        let told = client.locks.lock(name);
        let Err(error) = told else { return Err(format!("{name:?} was taken").into()) };
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{name:?}");
    }
    assert_eq!(client.link.requests().total, sent);
    Ok(())
}

/// All of them by one client; another finds each of them busy.
async fn names_that_look_alike_are_held_at_the_same_time(stage: Stage) -> Outcome {
    let options = patient(&stage).with_ttl(stage.part(60.0));
    let (client, rival) = (stage.client_with(options).await?, stage.bare().await?);
    for _ in 0..2 {
        let mut held = Vec::new();
        for name in names() {
            let lock = client.try_acquire(&name).await?;
            held.push(lock.ok_or_else(|| format!("{name:?} is taken for another name"))?);
        }
        for held in &held {
            rival.busy(&stage.claim(held.name())).await?;
            assert!(held.seen(), "{:?}", held.name());
        }
        for held in held {
            held.release().await?;
        }
    }
    Ok(())
}

async fn a_release_of_one_name_frees_no_other(stage: Stage) -> Outcome {
    let bare = stage.bare().await?;
    let claims: Vec<_> = names().iter().map(|name| stage.claim_for(name, 60.0)).collect();
    let mut tokens = Vec::new();
    for claim in &claims {
        tokens.push(bare.held(claim).await?.token);
    }
    for (released, claim) in claims.iter().enumerate() {
        assert_eq!(bare.release(claim).await?, Released::Released, "{:?}", claim.name);
        // One after it, and one far from it.
        for other in [released + 1, released + claims.len() / 2].into_iter().filter(|i| *i < claims.len()) {
            bare.busy(&stage.claim(&claims[other].name)).await?;
        }
    }
    for (claim, token) in claims.iter().zip(tokens) {
        let next = stage.claim_for(&claim.name, 60.0);
        assert!(bare.held(&next).await?.token > token, "{:?}", claim.name);
    }
    Ok(())
}

async fn a_waiter_is_woken_whatever_the_name(stage: Stage) -> Outcome {
    let options = patient(&stage).with_ttl(stage.part(60.0));
    let (holder, waiter) = (stage.bare().await?, Arc::new(stage.client_with(options).await?));
    let claims: Vec<_> = names().iter().map(|name| stage.claim_for(name, 60.0)).collect();
    let mut waiting = JoinSet::new();
    for claim in &claims {
        holder.held(claim).await?;
        let (waiter, name) = (waiter.clone(), claim.name.clone());
        waiting.spawn(async move { waiter.acquire(&name).await.map(|held| held.name().clone()) });
    }
    let asked = async {
        while waiter.locks.statistics().acquire.answers < claims.len() as u64 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    stage.within(20.0, "the word that each is busy", asked).await?;
    for claim in &claims {
        holder.release(claim).await?;
        let woken = stage.within(6.0, "the wake", waiting.join_next()).await?;
        assert_eq!(woken.ok_or("nobody waits")???, claim.name);
    }
    Ok(())
}

/// Held, released or waited for: what is below a name has nothing to do with it.
async fn a_name_below_another_is_no_contender(stage: Stage) -> Outcome {
    let options = patient(&stage).with_ttl(stage.part(60.0));
    let (first, second) = (stage.client_with(options.clone()).await?, stage.client_with(options).await?);
    let name = |name: &str| Name::new(name).unwrap_or_else(|error| panic!("{error}"));
    let (above, below) = (name("x"), name("x/0"));
    first.acquire(&below).await?.release().await?;
    let held = stage.within(4.0, "the name above", second.acquire(&above)).await??;
    let under = stage.within(4.0, "the name below", first.acquire(&below)).await??;
    assert!(held.seen() && under.seen());
    held.release().await?;
    assert!(under.seen());
    assert!(second.try_acquire(&below).await?.is_none());
    under.release().await?;
    Ok(())
}
