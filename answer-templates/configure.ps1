# Installs the VirtIO drivers and the QEMU guest agent from the driver medium.
# Setup runs this once, as SYSTEM, in the specialize pass; it needs nobody logged on and starts nothing else.
# Exit codes as Setup reads them: 0 done, 3 failed (1 and 2 would ask for a restart).
param(
    # The medium's folder for this Windows, such as w11 or 2k22.
    [Parameter(Mandatory = $true)]
    [ValidatePattern('^[A-Za-z0-9.]+$')]
    [string] $DriverFolder
)

Set-StrictMode -Version 2
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'

$LogFolder = Join-Path $env:ProgramData 'Sealroot'
$Log = Join-Path $LogFolder 'configure.log'
New-Item -ItemType Directory -Force -Path $LogFolder | Out-Null

function Write-Log([string] $Message) {
    $line = '{0:yyyy-MM-ddTHH:mm:ssZ} {1}' -f [DateTime]::UtcNow, $Message
    Add-Content -LiteralPath $Log -Value $line -Encoding UTF8
    Write-Output $line
}

function Find-DriverMedium {
    foreach ($letter in 'CDEFGHIJK'.ToCharArray()) {
        $root = "${letter}:\"
        if (Test-Path -LiteralPath "${root}viostor\$DriverFolder\amd64\viostor.inf") { return $root }
    }
    throw "no drive from C to K holds viostor\$DriverFolder\amd64\viostor.inf; attach the driver medium"
}

# Whether the driver store holds this very INF, byte for byte.
function Test-InDriverStore([System.IO.FileInfo] $Inf) {
    $wanted = (Get-FileHash -LiteralPath $Inf.FullName -Algorithm SHA256).Hash
    $store = Join-Path $env:SystemRoot 'System32\DriverStore\FileRepository'
    foreach ($folder in Get-ChildItem -LiteralPath $store -Directory -Filter "$($Inf.Name)_amd64_*") {
        $stored = Join-Path $folder.FullName $Inf.Name
        if ((Test-Path -LiteralPath $stored) -and
            (Get-FileHash -LiteralPath $stored -Algorithm SHA256).Hash -eq $wanted) { return $true }
    }
    return $false
}

function Install-Driver([System.IO.FileInfo] $Inf) {
    $output = & "$env:SystemRoot\System32\pnputil.exe" /add-driver $Inf.FullName /install
    $code = $LASTEXITCODE
    foreach ($line in $output) { Write-Log "  $line" }
    # 0 done; 3010 done after a restart; 259 no device took it, which is also said of a driver that is current.
    # So the code alone proves nothing, and the driver store is asked.
    if ($code -notin 0, 259, 3010) { throw "pnputil ended with $code for $($Inf.FullName)" }
    if (-not (Test-InDriverStore $Inf)) { throw "$($Inf.FullName) is not in the driver store (pnputil: $code)" }
    Write-Log "$($Inf.Name) is in the driver store (pnputil: $code)"
}

function Install-GuestAgent([string] $Root) {
    $package = "${Root}guest-agent\qemu-ga-x86_64.msi"
    if (-not (Test-Path -LiteralPath $package)) { throw "$package is missing" }
    $arguments = '/i', "`"$package`"", '/qn', '/norestart', '/l*v', "`"$LogFolder\guest-agent.log`""
    $code = (Start-Process -FilePath "$env:SystemRoot\System32\msiexec.exe" -ArgumentList $arguments -Wait -PassThru).ExitCode
    # 3010 and 1641: done after a restart, which Setup makes anyway.
    if ($code -notin 0, 1641, 3010) { throw "the guest agent's installer ended with $code; see $LogFolder\guest-agent.log" }
    if (-not (Get-Service -Name 'QEMU-GA' -ErrorAction SilentlyContinue)) { throw 'the service QEMU-GA is not there' }
    Write-Log "the guest agent is installed (msiexec: $code)"
}

try {
    $root = Find-DriverMedium
    Write-Log "driver medium: $root, folder $DriverFolder"
    foreach ($driver in 'viostor', 'vioscsi', 'NetKVM', 'vioserial', 'Balloon') {
        $folder = "$root$driver\$DriverFolder\amd64"
        $infs = @(Get-ChildItem -LiteralPath $folder -Filter '*.inf' -File)
        if ($infs.Count -eq 0) { throw "$folder holds no INF" }
        foreach ($inf in $infs) { Install-Driver $inf }
    }
    Install-GuestAgent $root
    Write-Log 'done'
    exit 0
}
catch {
    Write-Log "failed: $_"
    exit 3
}
