// Package media serves what machines are installed from: drivers, and ISOs with the editions of Windows in them. File
// servers hold a driver as drivers/<id>. They hold an ISO as <folder>.iso, and its files below <folder>.
package media
