//! The book: every document of the tree as pages of mdBook, and a check of every link between them.
//!
//! Job: `docs/src` links to documents beside the code. The pages are laid out as in the tree, so that these links
//! work; `SUMMARY.md` combines the one in `docs/src` with a list of the other documents.
//!
//! Invariants: nothing is written outside the target directory; a broken link fails the build.
//!
//! It does not follow links to other hosts.

use anyhow::{Context, bail};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use zc_rig::host::packages::ensure_mdbook;
use zc_rig::host::run::{build_dir, run, workspace};

/// Folder of the pages in SUMMARY.
const PAGES: &str = "docs/src";
/// The contents of the book, as mdBook names that file.
const SUMMARY: &str = "SUMMARY.md";
/// The first page.
const FIRST: &str = "README.md";

/// Builds the book in the target directory and checks its links.
///
/// # Errors
/// mdBook is missing and cannot be built, a page cannot be read, or a link leads nowhere; the message names them all.
pub(crate) fn build(install: bool) -> anyhow::Result<()> {
    let mdbook = ensure_mdbook(install)?;
    let (pages, book) = (build_dir()?.join("book-pages"), build_dir()?.join("book"));
    if pages.exists() {
        fs::remove_dir_all(&pages).with_context(|| format!("cannot remove {}", pages.display()))?;
    }
    lay_out(&pages)?;
    run(Command::new(mdbook).arg("build").arg(&pages).arg("--dest-dir").arg(&book))?;
    let broken = broken_links(&book)?;
    if !broken.is_empty() {
        bail!("links of the book that lead nowhere:\n{}", broken.join("\n"));
    }
    println!("    the book: {}", book.join("index.html").display());
    Ok(())
}

/// Copies the tree's documents, and the files that they link to, into `pages`, a folder that mdBook can build.
fn lay_out(pages: &Path) -> anyhow::Result<()> {
    let tree = workspace();
    let documents = tracked_documents(&tree)?;
    let mut wanted: BTreeSet<PathBuf> = documents.iter().cloned().collect();
    for document in &documents {
        let text = read(&tree.join(document))?;
        wanted.extend(targets(&text, "](", ')').filter_map(|target| {
            let place = resolve(document, target.split('#').next().unwrap_or_default())?;
            tree.join(&place).is_file().then_some(place)
        }));
    }
    for file in &wanted {
        let to = pages.join("src").join(file);
        fs::create_dir_all(to.parent().unwrap_or(pages))?;
        fs::copy(tree.join(file), &to).with_context(|| format!("cannot copy {}", file.display()))?;
    }
    let listed = read(&tree.join(PAGES).join(SUMMARY))?;
    fs::write(pages.join("src").join(SUMMARY), summary(&listed, &documents, |path| read(&tree.join(path)))?)?;
    let settings = read(&tree.join("docs/book.toml"))?;
    fs::write(pages.join("book.toml"), settings)?;
    Ok(())
}

/// Returns the table of contents: README, the pages of `docs/src/SUMMARY.md`, then every other document by its first
/// heading.
fn summary(
    listed: &str,
    documents: &[PathBuf],
    read: impl Fn(&Path) -> anyhow::Result<String>,
) -> anyhow::Result<String> {
    // mdBook's index.html is a copy of the first page: its links hold there only if that page is in the same folder.
    let first = format!("[zcached]({FIRST})\n");
    let pages = listed.strip_prefix("# Summary\n\n").unwrap_or(listed).replace("](", &format!("]({PAGES}/"));
    let mut text = format!("{first}{pages}\n# Beside the code\n\n");
    let others = documents.iter().filter(|path| !path.starts_with(PAGES) && *path != Path::new(FIRST));
    for document in others {
        let page = read(document)?;
        let heading = page.lines().find_map(|line| line.strip_prefix("# "));
        let title =
            heading.map_or_else(|| document.display().to_string(), |heading| heading.replace('`', ""));
        text.push_str(&format!("- [{title}]({})\n", document.display()));
    }
    Ok(text)
}

/// Returns the tracked Markdown files outside the table of contents, relative to the root of the tree.
fn tracked_documents(tree: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let listed = Command::new("git").current_dir(tree).args(["ls-files", "-z", "*.md"]).output()?;
    if !listed.status.success() {
        bail!("git does not list the documents: {}", String::from_utf8_lossy(&listed.stderr));
    }
    let names = String::from_utf8(listed.stdout).context("a document's name is not UTF-8")?;
    let documents = names.split_terminator('\0').map(PathBuf::from);
    Ok(documents.filter(|path| *path != Path::new(PAGES).join(SUMMARY)).collect())
}

/// Returns the text between each `before` and the next `end`.
fn targets<'a>(text: &'a str, before: &'a str, end: char) -> impl Iterator<Item = &'a str> {
    text.split(before).skip(1).filter_map(move |rest| rest.split_once(end)).map(|(target, _)| target)
}

/// `target` as seen from the folder of `page`; `None` if it leaves the tree or names another host.
fn resolve(page: &Path, target: &str) -> Option<PathBuf> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let mut place = page.parent()?.to_path_buf();
    for part in Path::new(target).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                if !place.pop() {
                    return None;
                }
            }
            Component::Normal(name) => place.push(name),
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(place)
}

/// Links between the files of the built book that lead to no file, or to no place in one.
fn broken_links(book: &Path) -> anyhow::Result<Vec<String>> {
    let mut broken = Vec::new();
    for page in pages_below(book)? {
        let text = read(&page)?;
        for target in targets(&text, "href=\"", '"') {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            if file.contains("://") || file.starts_with("mailto:") {
                continue;
            }
            let place = if file.is_empty() { Some(page.clone()) } else { resolve(&page, file) };
            let leads = place.is_some_and(|place| leads_to(&place, anchor));
            if !leads {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    Ok(broken)
}

/// Returns `true` if a file is there, and has the anchor if one is named. A folder has none.
fn leads_to(place: &Path, anchor: &str) -> bool {
    if anchor.is_empty() {
        return place.exists();
    }
    read(place).is_ok_and(|text| text.contains(&format!("id=\"{anchor}\"")))
}

/// The HTML files below a folder, but for the one that holds all pages and the one for unknown addresses, whose links
/// are those of other pages.
fn pages_below(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() {
            found.extend(pages_below(&path)?);
        } else if path.extension().is_some_and(|end| end == "html")
            && name != "print.html"
            && name != "404.html"
        {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_list_the_pages_and_then_the_other_documents() {
        let documents = ["README.md", "docs/src/index.md", "crates/a/FORMAT.md"].map(PathBuf::from);
        let text = summary("# Summary\n\n- [About](index.md)\n", &documents, |_| {
            Ok("# The `zc` format\n".to_owned())
        });
        let expected = "[zcached](README.md)\n- [About](docs/src/index.md)\n\n# Beside the code\n\n- [The zc format](crates/a/FORMAT.md)\n";
        assert_eq!(text.unwrap(), expected);
    }

    #[test]
    fn a_link_is_seen_from_its_page_and_stays_in_the_tree() {
        let page = Path::new("docs/src/tests.md");
        assert_eq!(resolve(page, "../../README.md"), Some(PathBuf::from("README.md")));
        assert_eq!(resolve(page, "./limits.md"), Some(PathBuf::from("docs/src/limits.md")));
        assert_eq!(resolve(page, "../../../x"), None);
        assert_eq!(resolve(page, "https://example.org/x"), None);
    }

    #[test]
    fn a_link_to_no_file_or_no_place_is_broken() {
        let book = tempfile::tempdir().unwrap();
        let page = |name: &str, text: &str| fs::write(book.path().join(name), text).unwrap();
        page("b.html", "<h1 id=\"top\">b</h1>");
        page(
            "a.html",
            "<a href=\"b.html#top\"> <a href=\"b.html#none\"> <a href=\"c.html\"> <a href=\"#top\">",
        );
        let broken = broken_links(book.path()).unwrap();
        let targets: Vec<&str> = broken.iter().filter_map(|line| line.rsplit(": ").next()).collect();
        assert_eq!(targets, ["b.html#none", "c.html", "#top"]);
    }
}
