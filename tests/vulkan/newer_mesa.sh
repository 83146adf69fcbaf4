#!/usr/bin/env bash
# Unpacks Mesa's software device out of Debian's backports where that of Debian 12 (22.3) is installed, which takes 35 times as long
# for a block of a transformer. Prints the file that names the driver to Vulkan's loader.
# The machine's own packages and package lists stay as they are. Usage: tests/vulkan/newer_mesa.sh FOLDER
set -euo pipefail
folder=$1
installed=$(dpkg-query -W -f '${Version}' mesa-vulkan-drivers 2> /dev/null || true)
codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
if [ "$codename" != bookworm ] || [ -z "$installed" ] || dpkg --compare-versions "$installed" ge 24; then
    ls /usr/share/vulkan/icd.d/lvp_icd*.json
    exit 0
fi
archive=$(apt-get indextargets --format '$(REPO_URI)' "Codename: $codename" | head -n 1)
rm -rf "$folder"
mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial"
cd "$folder"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $archive $codename-backports main" > apt/sources.list
apt=(apt-get -qq -o APT::Sandbox::User= -o "Dir::Etc::SourceList=$PWD/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null
    -o "Dir::State::Lists=$PWD/apt/lists" -o "Dir::Cache=$PWD/apt/cache" -o Dir::State::status=/dev/null)
"${apt[@]}" update
"${apt[@]}" download mesa-vulkan-drivers
dpkg -x mesa-vulkan-drivers_*.deb .
rm -rf apt ./*.deb
library=$(ls "$PWD"/usr/lib/*/libvulkan_lvp.so)
sed "s|\"library_path\": *\"[^\"]*\"|\"library_path\": \"$library\"|" usr/share/vulkan/icd.d/lvp_icd*.json > lvp_icd.json
echo "$PWD/lvp_icd.json"
