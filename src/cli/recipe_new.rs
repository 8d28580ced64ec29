//! `recipe new`: a recipe from the media at hand.

use std::io::{IsTerminal, Write, stdin};
use std::path::{Path, PathBuf};

use super::media_args;
use super::root_args::one_line;
use super::{Console, Exit, Failure};
use crate::io::{NewFile, Privacy};
use crate::media::wim::Image;
use crate::media::{self, Contents, DriverMedium, MediaError, VerifiedFile, WindowsMedium};
use crate::recipe::draft::{Draft, driver_folder};
use crate::recipe::expect::{self, Differences};
use crate::recipe::{self, RecipeError};

/// The most bytes of an answer on the terminal.
const MAX_ANSWER: usize = 1024;

/// Write a recipe for media at hand.
///
/// Both are hashed and read: pins and everything that the recipe expects are taken from them. What is not given is
/// asked, on a terminal.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The Windows installation ISO.
    #[arg(long, value_name = "ISO")]
    windows: PathBuf,
    /// The virtio-win driver ISO.
    #[arg(long, value_name = "ISO")]
    virtio: PathBuf,
    /// The image to install: its NAME, or its index.
    #[arg(long, value_name = "NAME|INDEX")]
    image: Option<String>,
    /// What the recipe is called: a DNS label.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The new file [default: NAME.toml].
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: Args, console: &Console) -> Result<(), Failure> {
    // Everything that is asked is asked before anything is hashed, which takes a while.
    let (windows, drivers) = (windows_medium(&args.windows)?, driver_medium(&args.virtio)?);
    let image = image(&windows, args.image.as_deref())?;
    let name = match args.name {
        Some(name) => name,
        None => ask("What is the recipe called (lower-case letters, digits, hyphens)?", "--name")?,
    };
    let output = args.output.unwrap_or_else(|| PathBuf::from(format!("{name}.toml")));
    let files = [&args.windows, &args.virtio];
    let mut named = Vec::new();
    for file in files {
        named.push(name_from(&output, file)?);
    }
    // Validated with stand-ins first: a bad name is known at once.
    let stand_ins = [b"stand-in: windows".as_slice(), b"stand-in: virtio"].map(media::Sha256::of);
    let text = |pins: &[media::Sha256; 2]| {
        let draft = Draft {
            name: &name,
            windows: (&named[0], pins[0]),
            virtio: (&named[1], pins[1]),
            image,
            drivers: &drivers,
        };
        draft.to_text()
    };
    valid(&output, &text(&stand_ins))?;
    let file = NewFile::create(&output, Privacy::Public)?;
    let paths = files.map(Clone::clone);
    let hashed: Result<Vec<VerifiedFile>, MediaError> =
        media::open_and_hash(&paths, console)?.into_iter().collect();
    let Ok([windows, virtio]) = <[VerifiedFile; 2]>::try_from(hashed?) else {
        return Err(Failure::new(Exit::Failed, "the media were not hashed"));
    };
    let text = text(&[windows.facts.sha256, virtio.facts.sha256]);
    let recipe = valid(&output, &text)?;
    let found = expect::check(&recipe, &windows, &virtio, None, media_args::judge(None))?;
    found.warnings.iter().for_each(|warning| console.warn(warning));
    if !found.differences.is_empty() {
        return Err(Differences(found.differences).into());
    }
    if driver_folder(image).is_none() {
        console.warn("virtio-win has no drivers for this Windows: the recipe expects none");
    }
    let mut file = file;
    file.write_all(text.as_bytes())
        .map_err(|e| Failure::new(Exit::Failed, format!("{}: {e}", output.display())))?;
    file.finish()?;
    console.result(format!("{}\n", output.display()));
    console.note(format!("`sealroot pin {}` writes its lock", output.display()));
    Ok(())
}

fn valid(path: &Path, text: &str) -> Result<recipe::Recipe, RecipeError> {
    let none = |_: &Path| Err(std::io::ErrorKind::NotFound.into());
    Ok(recipe::parse(path, text.as_bytes(), &[], &none)?)
}

fn read(path: &Path) -> Result<Contents, Failure> {
    let (file, _) = media::open(path)?;
    Contents::read(&file).map_err(|e| Failure::from(e).context(path.display().to_string()))
}

fn windows_medium(path: &Path) -> Result<WindowsMedium, Failure> {
    match read(path)? {
        Contents::Windows(medium) => Ok(*medium),
        other => Err(wrong(path, "a Windows medium", &other)),
    }
}

fn driver_medium(path: &Path) -> Result<DriverMedium, Failure> {
    match read(path)? {
        Contents::Drivers(medium) => Ok(*medium),
        other => Err(wrong(path, "a virtio-win medium", &other)),
    }
}

fn wrong(path: &Path, wanted: &str, got: &Contents) -> Failure {
    Failure::new(Exit::Rejected, format!("{} is {}, not {wanted}", path.display(), got.what()))
}

/// The image that was named, or is chosen, or is the only one.
fn image<'m>(medium: &'m WindowsMedium, wanted: Option<&str>) -> Result<&'m Image, Failure> {
    let images: Vec<&Image> = medium.installable().collect();
    let list = || {
        let line = |image: &&Image| format!("\n  {} {}", image.index, one_line(&image.name));
        images.iter().map(line).collect::<String>()
    };
    let wanted = match (wanted, images.as_slice()) {
        (Some(wanted), _) => wanted.to_owned(),
        (None, [only]) => return Ok(*only),
        (None, _) => ask(&format!("Which image, by its number?{}\n", list()), "--image")?,
    };
    let found = images.iter().find(|image| image.name == wanted || image.index.to_string() == wanted);
    found.copied().ok_or_else(|| {
        Failure::new(Exit::Rejected, format!("no image is `{wanted}`; the medium has{}", list()))
    })
}

/// Asks on the terminal; without one, the option is missing.
fn ask(question: &str, option: &str) -> Result<String, Failure> {
    let mut terminal = std::io::stderr();
    if !stdin().is_terminal() || !terminal.is_terminal() {
        return Err(Failure::new(
            Exit::Usage,
            format!("{option} is missing, and there is no terminal to ask on"),
        ));
    }
    let asked = write!(terminal, "{question} ").and_then(|()| terminal.flush());
    let mut answer = String::new();
    asked
        .and_then(|()| stdin().read_line(&mut answer))
        .map_err(|e| Failure::new(Exit::Failed, format!("the terminal: {e}")))?;
    match answer.trim() {
        "" => Err(Failure::new(Exit::Usage, format!("nothing was answered; {option} says it, too"))),
        answer => Ok(answer.chars().take(MAX_ANSWER).collect()),
    }
}

/// A medium's name in a recipe: the bare one where both are in one folder, else its whole path.
fn name_from(recipe: &Path, file: &Path) -> Result<String, Failure> {
    let failed = |e: std::io::Error| Failure::new(Exit::Failed, format!("{}: {e}", file.display()));
    let full = file.canonicalize().map_err(failed)?;
    let folder = recipe.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let beside = folder.canonicalize().is_ok_and(|folder| full.parent() == Some(folder.as_path()));
    let name = match full.file_name() {
        Some(name) if beside => Path::new(name),
        _ => &full,
    };
    name.to_str().map(str::to_owned).ok_or_else(|| {
        Failure::new(
            Exit::Rejected,
            format!("{} has a name that is no UTF-8, as recipes are", file.display()),
        )
    })
}
