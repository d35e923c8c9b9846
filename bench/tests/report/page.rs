//! The page: what it loads, who can read it, and its plots.

use lock_bench::{
    record::Workload,
    report::{html, markdown, table},
};
use roxmltree::{Document, Node};

use crate::{elements, heading_depth, hostile, parsed, sample};

#[test]
fn the_page_loads_nothing_and_runs_nothing() {
    for record in [sample::record(), hostile()] {
        let page = html(&record);
        let document = parsed(&page);
        for node in document.descendants().filter(Node::is_element) {
            let name = node.tag_name().name();
            assert!(!["script", "link", "img", "iframe", "object", "image", "use"].contains(&name), "{name}");
            for attribute in node.attributes() {
                let (key, value) = (attribute.name(), attribute.value());
                assert!(
                    !key.starts_with("on") && !["src", "srcset", "style"].contains(&key),
                    "{key}={value}"
                );
                assert!(key != "href" || value.starts_with('#'), "{key}={value}");
            }
        }
        let style = elements(&document, "style").next().and_then(|style| style.text()).unwrap();
        assert!(!style.contains("url(") && !style.contains("@import") && !style.contains("//"), "{style}");
    }
}

#[test]
fn the_page_can_be_read_by_everyone() {
    let mut waiting = sample::record();
    waiting.measurements.retain(|it| it.workload == Workload::Waiting);
    let records = [
        ("sample", sample::record()),
        ("one", sample::one_backend()),
        ("waiting", waiting),
        ("hostile", hostile()),
    ];
    for (name, record) in records {
        let page = html(&record);
        // To look at.
        let place = |ending| format!("{}/report-{name}.{ending}", env!("CARGO_TARGET_TMPDIR"));
        std::fs::write(place("html"), &page).unwrap();
        std::fs::write(place("md"), markdown(&record)).unwrap();
        std::fs::write(place("txt"), table(&record)).unwrap();
        readable(&parsed(&page));
    }
}

fn readable(document: &Document<'_>) {
    assert_eq!(document.root_element().attribute("lang"), Some("en"));
    assert!(elements(document, "meta").any(|meta| meta.attribute("name") == Some("viewport")));

    let mut depth = 0;
    for (heading, next) in document.descendants().filter_map(|node| Some((node, heading_depth(&node)?))) {
        assert!(next <= depth + 1, "{:?} after a heading of depth {depth}", heading.text());
        depth = next;
    }

    for plot in elements(document, "svg") {
        if plot.attribute("aria-hidden") == Some("true") {
            continue;
        }
        assert_eq!(plot.attribute("role"), Some("img"));
        assert!(plot.attribute("aria-label").is_some_and(|label| !label.is_empty()));
        assert_eq!(
            (plot.attribute("width"), plot.attribute("height")),
            (None, None),
            "it scales to the page"
        );
        let described = plot.children().find(|node| node.has_tag_name("desc")).and_then(|node| node.text());
        assert!(described.is_some_and(|text| text.contains(": ")), "{described:?}");
    }

    let ids: Vec<_> = document.descendants().filter_map(|node| node.attribute("id")).collect();
    for link in elements(document, "a").filter_map(|link| link.attribute("href")) {
        assert_eq!(ids.iter().filter(|id| **id == &link[1..]).count(), 1, "{link}");
    }
    for table in elements(document, "table") {
        let class = table.parent().and_then(|parent| parent.attribute("class"));
        assert_eq!(class, Some("scroll"), "a wide table scrolls in its own box");
    }
}

#[test]
fn every_plot_has_a_legend_and_a_table_in_its_section() {
    let page = html(&sample::record());
    let document = parsed(&page);
    let mut plotted = 0;
    for section in elements(&document, "section") {
        let has = |name: &'static str| section.descendants().filter(move |node| node.has_tag_name(name));
        if has("figure").count() > 0 {
            plotted += 1;
            assert!(has("ul").any(|list| list.attribute("class") == Some("legend") && list.has_children()));
            assert!(
                has("details").any(|details| details.descendants().any(|node| node.has_tag_name("table")))
            );
        }
    }
    assert_eq!(plotted, 9, "eight workloads, and the ratios");
}

#[test]
fn every_colour_of_a_plot_has_one_for_a_dark_screen() {
    let page = html(&sample::record());
    let document = parsed(&page);
    let style = elements(&document, "style").next().and_then(|style| style.text()).unwrap();
    let mut painted = 0;
    for node in elements(&document, "svg").flat_map(|svg| svg.descendants()) {
        for paint in ["fill", "stroke"] {
            if let Some(color) = node.attribute(paint).filter(|color| *color != "none") {
                painted += 1;
                assert!(style.contains(&format!("svg [{paint}=\"{color}\"]")), "{paint} {color}");
            }
        }
    }
    assert!(painted > 1000, "{painted}");
}
