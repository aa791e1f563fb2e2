// Package media serves what machines are installed from: drivers, and ISOs with the editions of Windows in them. File servers have
// a driver as drivers/<id>, and an ISO as <folder>.iso, with its files below <folder>.
package media
